"""Trackers never decide about a run. The adapters run against the real libraries where these are installed."""

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_resume import SHORT

from dare.config import load_config
from dare.errors import DareError
from dare.train import tracker
from dare.train.config import SFTConfig
from dare.train.folder import checkpoints
from dare.train.sft import train_sft

OURS = {"wandb": "wandb/*/*.wandb", "trackio": "trackio/*.db", "mlflow": "mlflow.db", "swanlab": "swanlab/*/*.swanlab"}


def sft(folder: Path, *more: str) -> Path:
    layers = [f"output={folder}", *SHORT, "train={batch: 2, steps: 4, save_every: 2}"]
    return train_sft(load_config(SFTConfig, [*layers, *more]))


class Fails:
    """Fails where it is told to."""

    where = ""

    def __init__(self, place: tracker.Place):
        self.seen: list[int] = []
        self.fail("open", 0)

    def fail(self, here: str, step: int) -> None:
        if here == self.where and step in (0, 2):
            raise RuntimeError(f"no {here}\ntoday")

    def log(self, step: int, values: Any) -> None:
        self.fail("log", step)

    def close(self) -> None:
        self.fail("close", 0)


@pytest.mark.parametrize("where", ["open", "log", "close"])
def test_one_that_fails_is_named_once_and_the_run_goes_on(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracker, "check_installed", lambda names: None)
    monkeypatch.setitem(tracker.TRACKERS, "wandb", type("Here", (Fails,), {"where": where}))
    monkeypatch.setattr("dare.train.config.check_installed", lambda names: None)
    folder = sft(tmp_path / "run", "train.trackers=[wandb, tensorboard]")
    told = capsys.readouterr().err
    assert told.count(f"tracker wandb failed and is dropped: RuntimeError: no {where} today") == 1
    assert len(checkpoints(folder)) == 2 and list((folder / "tensorboard").iterdir())


def test_one_that_is_not_installed_is_refused_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "find_spec", lambda name: None)
    with pytest.raises(DareError, match=r'swanlab is not installed; pip install "dare\[swanlab\]"'):
        sft(tmp_path / "run", "train.trackers=[swanlab]")
    with pytest.raises(DareError, match=r"train.trackers"):
        sft(tmp_path / "run", "train.trackers=[wandbb]")
    assert not (tmp_path / "run").exists()


def test_one_that_cannot_be_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: tracker.Place) -> tracker.Tracker:
        raise ImportError("half of it is missing")

    monkeypatch.setitem(tracker.TRACKERS, "tensorboard", broken)
    with pytest.raises(DareError, match=r'half of it is missing\); pip install "dare\[tensorboard\]"'):
        sft(tmp_path / "run")


def test_tensorboard_shows_every_step_once_also_of_a_resumed_run(tmp_path: Path) -> None:
    folder = sft(tmp_path / "run")
    checkpoints(folder)[-1].rename(tmp_path / "gone")
    sft(folder, "resume=true")
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("sft/loss")] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", OURS)
def test_the_library_itself_offline(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    os.environ["TRACKIO_DIR"] = str(tmp_path / "run" / "trackio")
    folder = sft(tmp_path / "run", f"train.trackers=[{name}]")
    checkpoints(folder)[-1].rename(tmp_path / "gone")
    sft(folder, f"train.trackers=[{name}]", "resume=true")
    assert "failed" not in capsys.readouterr().err and list(folder.glob(OURS[name]))
