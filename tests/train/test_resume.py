import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dare.config import load_config
from dare.train.config import RLConfig, SFTConfig
from dare.train.folder import checkpoints
from dare.train.rl import train_rl
from dare.train.sft import train_sft

SHORT = [
    "task.train=sudoku_small",
    "task.train_count=30",
    "decoding.max_new_tokens=17",
    "decoding.steps=2",
    "train.batch=4",
]
GROUP = ["algorithm.group_size=3", "algorithm.updates=2", "decoding.temperature=1.0", "optim.lr=1e-3"]
RL = {
    "d1": ["algorithm.name=d1", *GROUP],
    "coupled_grpo": ["algorithm.name=coupled_grpo", *GROUP],
}


def final_files(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    newest = checkpoints(folder)[-1]
    return {name: load_file(newest / name) for name in ("model.safetensors", "optimizer.safetensors")}


def assert_same_bits(one: Path, other: Path) -> None:
    for name, tensors in final_files(one).items():
        for key, value in final_files(other)[name].items():
            assert torch.equal(tensors[key], value), f"{name}: {key}"


def metrics(folder: Path) -> list[str]:
    """The lines without their clocks."""
    clocks = ("time", "tokens_per_s", "memory_gb")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [str({k: v for k, v in line.items() if not k.startswith(clocks)}) for line in lines]


def assert_resume_changes_nothing(run: Callable[..., Path], tmp_path: Path) -> None:
    """Ten steps at once against five, a loss of everything later, and five more."""
    whole = run("whole", "train.steps=10")
    run("halves", "train.steps=10", "train.save_every=5")
    for late in checkpoints(tmp_path / "halves")[1:]:
        late.rename(tmp_path / "gone")
    halves = run("halves", "train.steps=10", "resume=true")
    assert_same_bits(whole, halves)
    assert metrics(whole) == metrics(halves)


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_sft_5_and_resume_5_equals_10(tmp_path: Path, model: str) -> None:
    def run(name: str, *more: str) -> Path:
        layers = [f"output={tmp_path / name}", f"model.path={model}", *SHORT, "optim.schedule=cosine", *more]
        return train_sft(load_config(SFTConfig, layers))

    assert_resume_changes_nothing(run, tmp_path)


@pytest.mark.parametrize("name", RL)
def test_rl_5_and_resume_5_equals_10(tmp_path: Path, name: str) -> None:
    def run(folder: str, *more: str) -> Path:
        return train_rl(load_config(RLConfig, [f"output={tmp_path / folder}", *SHORT, *RL[name], *more]))

    assert_resume_changes_nothing(run, tmp_path)


def test_micro_batches_change_no_result_beyond_rounding(tmp_path: Path) -> None:
    folders = []
    for size in (1, 3, 64):
        layers = [f"output={tmp_path / str(size)}", *SHORT, "train.steps=2", f"engine.micro_batch={size}"]
        folders.append(train_sft(load_config(SFTConfig, [*layers, "engine.dtype=float64"])))
    weights = [final_files(folder)["model.safetensors"] for folder in folders]
    for key, value in weights[0].items():
        for other in weights[1:]:
            torch.testing.assert_close(other[key], value, rtol=1e-9, atol=1e-12)
