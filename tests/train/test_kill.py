"""``kill -9`` at any moment loses nothing but the steps since the last checkpoint, and changes no bit of the result."""

import os
import random
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from test_resume import SHORT, assert_same_bits, metrics

from dare.config import load_config
from dare.train.config import SFTConfig
from dare.train.folder import checkpoints
from dare.train.manifest import damage
from dare.train.sft import train_sft
from forks import finish, kill, start

STEPS, KILLS, LONGEST = 20, 25, 0.4
RUN = [*SHORT, "train={batch: 1, save_every: 1, keep: 2, trackers: []}", "train.keep_best=loss:min"]


def train(folder: Path, *more: str) -> Path:
    """Start a run, or continue what a kill has left of it."""
    resume = (folder / "config.yaml").exists()
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    return train_sft(load_config(SFTConfig, [f"output={folder}", *RUN, *more, f"resume={resume}"]))


def assert_complete(folder: Path) -> None:
    assert not [damage(one) for one in checkpoints(folder) if damage(one)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("whole") / "run", f"train.steps={STEPS}")


@pytest.mark.parametrize("mode", ["train.save_async=false", "train.save_async=true"])
def test_25_kills_at_random_moments(tmp_path: Path, whole: Path, mode: str) -> None:
    rng, kills, runs = random.Random(mode), 0, [tmp_path / "run_0"]
    while kills < KILLS:
        child = start(partial(train, runs[-1], f"train.steps={STEPS}", mode), tmp_path / "log")
        time.sleep(rng.uniform(0, LONGEST))
        if (status := kill(child)) == 0:
            runs.append(tmp_path / f"run_{len(runs)}")
        else:
            assert status == -signal.SIGKILL, (tmp_path / "log").read_text()
            kills += 1
        assert_complete(runs[-1])
    train(runs[-1], f"train.steps={STEPS}", mode)
    for run in runs:
        assert_same_bits(run, whole)
        assert metrics(run) == metrics(whole)
        assert (run / "best").resolve().name == (whole / "best").resolve().name


def die_at(operation: int, folder: Path) -> None:
    """Kill this process before its n-th change in ``folder``: of a name, or a file that is opened to be written."""
    left = [operation]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "shutil.rmtree")
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (changes or writes) and str(folder) in str(arguments[0]):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.parametrize(("mode", "operation"), [("train.save_async=false", 0), ("train.save_async=true", 1)])
def test_a_kill_between_any_two_changes_of_the_folder(tmp_path: Path, mode: str, operation: int) -> None:
    """A run is killed at a change, then, continued, three changes later than that, and so on to its end."""
    settings = ["train.steps=8", mode]
    whole = train(tmp_path / "whole", *settings)
    folder, status = tmp_path / "run", -signal.SIGKILL

    def doomed() -> None:
        die_at(operation, folder)
        train(folder, *settings)

    while status == -signal.SIGKILL:
        status = finish(start(doomed, tmp_path / "log"))
        assert status in (0, -signal.SIGKILL), (tmp_path / "log").read_text()
        assert_complete(folder)
        operation += 3
    assert operation > 16
    assert_same_bits(folder, whole)
    assert metrics(folder) == metrics(whole)
