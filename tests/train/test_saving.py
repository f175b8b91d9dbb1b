"""Checkpoints: written in the background, checked, rotated, and what happens when they cannot be written."""

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from test_dpo_runs import layers as pairs  # noqa: F401
from test_resume import RL, SHORT, assert_same_bits, metrics

from dare.config import load_config
from dare.errors import DareError
from dare.train.config import DPORunConfig, RLConfig, SFTConfig
from dare.train.dpo import train_dpo
from dare.train.folder import checkpoints, is_running, newest_checkpoint, step_of
from dare.train.manifest import damage
from dare.train.rl import train_rl
from dare.train.run import load_model
from dare.train.sft import train_sft
from forks import finish, start

FEW = ["train={batch: 2, steps: 4, trackers: []}"]
ASYNC = ["train.save_every=1", "train.keep=9", "train.save_async=true"]
GUARD = ["guard={eval_every: 2, eval_count: 6}"]
PPO = "algorithm={name: ppo, group_size: 2, updates: 1, critic: {lr: 1e-3}}"


def sft(folder: Path, *more: str) -> Path:
    return train_sft(load_config(SFTConfig, [f"output={folder}", *SHORT, *FEW, *more]))


def rl(folder: Path, *more: str) -> Path:
    return train_rl(load_config(RLConfig, [f"output={folder}", *SHORT, *RL["d1"], *FEW, *GUARD, *more]))


def steps(folder: Path) -> list[int]:
    return [step_of(one) for one in checkpoints(folder)]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        f"{one.name}/{path.relative_to(one)}": path.read_bytes()
        for one in checkpoints(folder)
        for path in one.rglob("*")
        if path.is_file()
    }


def lose(folder: Path, kept: int) -> None:
    for late in checkpoints(folder)[kept:]:
        shutil.rmtree(late)


@pytest.mark.parametrize("job", [(sft,), (sft, "engine.dtype=bfloat16"), (sft, "model.lora={rank: 2}"), (rl, PPO)])
def test_a_save_in_the_background_writes_the_same_bytes(tmp_path: Path, job: tuple[Any, ...]) -> None:
    run, *settings = job
    settings += ["train.steps=2"]
    first = contents(run(tmp_path / "one", *settings, *ASYNC[:2]))
    assert first == contents(run(tmp_path / "two", *settings, *ASYNC)) and len(first) > 2 * 8


def test_rl_with_guard_and_background_saves_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings = [*ASYNC, "train.keep_best=eval/accuracy:max"]
    whole, halves = rl(tmp_path / "whole", *settings), rl(tmp_path / "halves", *settings)
    lose(halves, 2)
    rl(halves, *settings, "resume=true")
    assert_same_bits(whole, halves)
    assert metrics(whole) == metrics(halves) and contents(whole) == contents(halves)


def test_dpo_with_background_saves_resumes_bit_for_bit(tmp_path: Path, pairs: list[str]) -> None:  # noqa: F811
    def dpo(name: str, *more: str) -> Path:
        return train_dpo(load_config(DPORunConfig, [*pairs, *FEW, *ASYNC, f"output={tmp_path / name}", *more]))

    whole, halves = dpo("whole"), dpo("halves")
    lose(halves, 2)
    dpo("halves", "resume=true")
    assert_same_bits(whole, halves)
    assert metrics(whole) == metrics(halves)


def test_the_newest_are_kept_and_the_best_too(tmp_path: Path) -> None:
    folder = sft(tmp_path / "run", "train.steps=12", "train.save_every=1", "train.keep_best=loss:min")
    losses = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = losses.index(min(losses)) + 1
    assert steps(folder) == sorted({best, 11, 12}) and best < 11
    assert newest_checkpoint(str(folder / "best")) == str(checkpoints(folder)[0])
    assert load_model(str(folder / "best")).tokenizer is not None
    # the best is remembered by a run that continues, and moves on in one that does not know it
    sft(folder, "train.steps=14", "train.save_every=1", "train.keep_best=loss:min", "resume=true")
    assert (folder / "best").resolve().name == f"step_{best:06d}"


def test_an_evaluation_that_is_better_is_saved_when_no_save_is_due(tmp_path: Path) -> None:
    folder = rl(tmp_path / "run", "train.keep_best=eval/reward:max")
    shown = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    value = {line["step"]: line["eval/reward"] for line in shown if "eval/reward" in line and line["step"]}
    best = min(step for step in value if value[step] == max(value.values()))
    assert (folder / "best").resolve().name == f"step_{best:06d}" and set(steps(folder)) == {best, 4}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train.keep_best=loss", "write METRIC:max or METRIC:min"),
        ("train.keep_best=los:min", "no metric 'los' is logged; did you mean 'loss'?"),
        ("train.keep_best=eval/accuracy:max", "set guard.eval_every"),
        ("train.save_async=true", "save_async has no effect"),
        ("resume=-3", "setting resume=-3: give true, false or the step of a checkpoint"),
        ("resume=3", "has no checkpoint of that step; it has: none"),
    ],
)
def test_what_has_no_effect_is_refused(tmp_path: Path, setting: str, expected: str) -> None:
    with pytest.raises(DareError, match=expected):
        sft(tmp_path / "run", setting)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "optimizer.safetensors has another SHA-256": lambda one: flip(one / "optimizer.safetensors"),
    "trainer.json is missing": lambda one: (one / "trainer.json").unlink(),
    "model.safetensors has 100 bytes instead of": lambda one: os.truncate(one / "model.safetensors", 100),
    "manifest.json is missing or broken": lambda one: (one / "manifest.json").write_text("{"),
}


def flip(path: Path) -> None:
    """One bit in the middle, as a bad disk would."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_named_and_the_one_before_offered(tmp_path: Path) -> None:
    whole = sft(tmp_path / "whole")
    for number, (reason, harm) in enumerate(DAMAGE.items()):
        folder = sft(tmp_path / str(number), "train.save_every=1", "train.keep=3")
        harm(checkpoints(folder)[-1])
        with pytest.raises(DareError) as caught:
            sft(folder, "resume=true")
        message = str(caught.value)
        assert "step_000004 is damaged: " + reason in message
        assert message.endswith(f"step_000003 before it is complete, continue from there with: dare sft "
                                f"{folder}/config.yaml resume=3")  # fmt: skip
        train_sft(load_config(SFTConfig, [f"{folder}/config.yaml", "resume=3"]))
        assert_same_bits(folder, whole)
        assert (folder / "checkpoints" / "aside_step_000004").is_dir() and not damage(checkpoints(folder)[-1])


def test_no_complete_checkpoint_at_all(tmp_path: Path) -> None:
    folder = sft(tmp_path / "run")
    flip(checkpoints(folder)[-1] / "model.safetensors")
    with pytest.raises(DareError, match="no complete one is before it"):
        sft(folder, "resume=true")


def limited(folder: Path, size: int, *more: str) -> None:
    """Train where no file can grow beyond ``size`` bytes, which a full disk is to a process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    sft(folder, *more)


def unprivileged(folder: Path, *more: str) -> None:
    """Train as a user who may not write there."""
    if os.getuid() == 0:
        os.setuid(65534)
    sft(folder, *more)


@pytest.mark.parametrize("mode", ["train.save_async=false", "train.save_async=true"])
def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(tmp_path: Path, mode: str) -> None:
    settings = ["train.save_every=2", "train.steps=8", mode]
    whole, folder = sft(tmp_path / "whole", *settings), sft(tmp_path / "run", *settings)
    lose(folder, 1)
    last = steps(folder)
    assert finish(start(partial(limited, folder, 5_000_000, *settings, "resume=true"), tmp_path / "log")) == 2
    message = (tmp_path / "log").read_text().splitlines()[-1]
    assert f"checkpoint {folder}/checkpoints/step_000008 cannot be written (File too large)" in message
    assert f"the last one, step_{last[0]:06d}, is intact; free space" in message and "resume=true" in message
    assert steps(folder) == last and not damage(checkpoints(folder)[0])
    assert not list((folder / "checkpoints").glob(".*"))
    sft(folder, *settings, "resume=true")
    assert_same_bits(folder, whole)


def test_a_log_on_a_full_device_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    sft(folder, "train.save_every=2")
    lose(folder, 1)
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(DareError, match=r"metrics.jsonl cannot be written \(No space left on device\)"):
        sft(folder, "train.save_every=2", "resume=true")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    for parent in tmp_path.parents:
        if parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    folder = sft(tmp_path / "run", "train.save_every=2")
    lose(folder, 1)
    for path in checkpoints(folder)[0].iterdir():
        path.chmod(0o644)
    (tmp_path / "log").touch()
    (tmp_path / "log").chmod(0o666)
    for output, more in ((folder, ["resume=true"]), (tmp_path / "new", [])):
        for path in (folder, tmp_path):
            path.chmod(0o555)
        assert finish(start(partial(unprivileged, output, *more), tmp_path / "log")) == 2
        tmp_path.chmod(0o755)
        assert f"run folder {output} cannot be written (Permission denied" in (tmp_path / "log").read_text()
    folder.chmod(0o755)
    assert steps(folder) == [2] and not damage(checkpoints(folder)[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sft(tmp_path_factory.mktemp("whole") / "run", "train.steps=30")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_saves_and_the_rest_changes_nothing(
    tmp_path: Path, whole: Path, number: signal.Signals, name: str
) -> None:
    folder = tmp_path / "run"
    child = start(partial(sft, folder, "train.steps=30"), tmp_path / "log")
    wait_for(folder / "metrics.jsonl")
    assert is_running(folder)
    with pytest.raises(DareError, match="another process is training in"):
        sft(folder, "resume=true", "train.steps=30")
    os.kill(child, number)
    assert finish(child) == 128 + number
    (reached,) = steps(folder)
    printed = (tmp_path / "log").read_text()
    assert f"{name}: this step is finished and saved" in printed and reached < 30 and not is_running(folder)
    assert f"step {reached} of 30, which is saved; continue with: dare sft {folder}/config.yaml resume=true" in printed
    sft(folder, "train.steps=30", "resume=true")
    assert_same_bits(folder, whole)
    assert metrics(folder) == metrics(whole)


def wait_for(path: Path) -> None:
    while not (path.exists() and path.stat().st_size):
        time.sleep(0.01)


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    large = ["train.steps=2", "train.batch=400", "task.train_count=400", "engine.micro_batch=8"]
    child = start(partial(sft, folder, *large), log)
    wait_for(folder / "environment.json")
    time.sleep(0.3)
    os.kill(child, signal.SIGTERM)
    while "again stops it at once" not in log.read_text():
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
    assert finish(child) == -signal.SIGTERM and not steps(folder)


def test_the_run_folder_tells_what_ran(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = sft(tmp_path / "run", "train.save_every=2")
    told = json.loads((folder / "environment.json").read_text())
    now = told["from_step"]["1"]
    assert now["libraries"]["torch"] and now["python"] and now["cores"] and now["device"] == "cpu"
    assert now["git"] is None or (len(now["git"]["commit"]) == 40 and isinstance(now["git"]["dirty"], bool))
    for private in (os.uname().nodename, str(Path.home()), str(tmp_path)):
        assert private not in json.dumps(told)
    lose(folder, 1)
    capfd.readouterr()
    sft(folder, "train.save_every=2", "resume=true", "optim.lr=1e-3")
    assert "another setting: optim.lr=0.001 (was 1e-05)" in capfd.readouterr().err
    assert (
        "lr: 0.001" in (folder / "config.yaml").read_text() and "resume: false" in (folder / "config.yaml").read_text()
    )
    assert "lr: 1.0e-05" in (folder / "config_to_step_000002.yaml").read_text()
    assert json.loads((folder / "environment.json").read_text()) == told


def test_other_rows_are_refused(tmp_path: Path) -> None:
    folder = sft(tmp_path / "run", "train.save_every=2")
    lose(folder, 1)
    assert json.loads((folder / "data.json").read_text()).keys() == {"train"}
    before = (folder / "config.yaml").read_text()
    with pytest.raises(DareError, match="the train rows are not those this run began with"):
        sft(folder, "train.save_every=2", "resume=true", "task.seed=1")
    assert (folder / "config.yaml").read_text() == before
    sft(folder, "train.save_every=2", "resume=true")


def test_nothing_is_pickled(tmp_path: Path) -> None:
    folder = rl(tmp_path / "run", PPO)
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json", ".jsonl", ".yaml", ".jinja", ".lock"}
    assert load_file(checkpoints(folder)[-1] / "critic" / "trained.safetensors")
