"""``dare runs`` on real run folders."""

import time
from functools import partial
from pathlib import Path

import pytest

from dare.cli import main
from dare.config import load_config
from dare.errors import DareError
from dare.runs import find_runs, runs
from dare.train.config import RLConfig, SFTConfig
from dare.train.rl import train_rl
from dare.train.sft import train_sft
from forks import kill, start

SMALL = ["task={train: sudoku_small, train_count: 20}", "decoding={max_new_tokens: 17, steps: 2, temperature: 1.0}"]
TRAIN = "train={batch: 2, steps: 3, trackers: []}"


def sft(folder: Path, *more: str) -> Path:
    return train_sft(load_config(SFTConfig, [f"output={folder}", *SMALL, TRAIN, *more]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    sft(place / "first")
    sft(place / "deep" / "second", "optim.lr=1e-3", "train.steps=5")
    rl = ["algorithm={name: d1, group_size: 2, updates: 1}", f"output={place / 'third'}"]
    train_rl(load_config(RLConfig, [*SMALL, TRAIN, *rl]))
    (place / "broken").mkdir()
    (place / "broken" / "config.yaml").write_text("a: [")
    (place / "notes").mkdir()
    (place / "notes" / "config.yaml").write_text("a: 1")
    return place


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[str]:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("sys.argv", ["dare", "runs", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_every_run_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, second, first, third = shown(capsys, monkeypatch, folder)
    assert second.startswith("deep/second tiny:masked sudoku_small sft 5/5 loss ") and second.endswith("s finished")
    assert first.startswith("first tiny:masked sudoku_small sft 3/3 loss ")
    assert third.startswith("third tiny:masked sudoku_small rl d1 3/3 reward/mean ")


def test_runs_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chart = tmp_path / "charts" / "both.png"
    lines = shown(capsys, monkeypatch, folder / "first", folder / "deep" / "second", "--chart", chart)
    assert "optim.lr 1e-05 0.001" in lines and "train.steps 3 5" in lines
    assert not [line for line in lines if line.startswith(("output", "task.", "model."))]
    (loss,) = [line for line in lines if line.startswith("loss ")]
    assert any(bar in loss for bar in "▁█")
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_trains_and_one_that_was_killed(tmp_path: Path) -> None:
    child = start(partial(sft, tmp_path / "run", "train.steps=5000"), tmp_path / "log")
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    (run,) = find_runs(tmp_path)
    assert run.state == "running"
    kill(child)
    assert run.state == "stopped"


@pytest.mark.parametrize(
    ("places", "expected"),
    [(["first", "notes"], "is no run folder"), (["notes"], "no run in"), (["absent"], "no run in")],
)
def test_other_folders_are_refused(folder: Path, places: list[str], expected: str) -> None:
    with pytest.raises(DareError, match=expected):
        runs([folder / place for place in places], None)
    with pytest.raises(DareError, match="name two or more"):
        runs([folder], folder / "chart.png")
    assert not (folder / "chart.png").exists()
