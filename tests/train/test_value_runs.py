"""Runs with a value model: one learns to answer in letters, each resumes bit for bit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_resume import SHORT, assert_resume_changes_nothing

from dare.config import load_config
from dare.engines.critic import CRITIC
from dare.errors import DareError
from dare.plan import plan
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.folder import checkpoints
from dare.train.rl import train_rl

ANY_GROUP = "group_size: 8, success_range: null, truncated_is_wrong: false"
RUNS = {
    "tracerl_value": f"algorithm={{name: tracerl, {ANY_GROUP}, critic: {{lr: 1e-3}}}}",
    "ppo": "algorithm={name: ppo, group_size: 8, updates: 1, critic: {lr: 1e-3}}",
}
NO_CRITIC = f"algorithm={{name: tracerl, {ANY_GROUP}}}"


def letters(completion: str, **_: object) -> float:
    return sum(c.isascii() and c.isalpha() for c in completion) / 8


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_tracerl_with_a_value_model_learns(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REWARDS, "letters", letters)
    layers = [
        f"output={tmp_path / 'run'}",
        f"model.path={model}",
        "task={train: sudoku_small, train_count: 50, rewards: {letters: 1.0}}",
        "decoding={max_new_tokens: 8, block_size: 8, steps: 2, temperature: 1.0}",
        RUNS["tracerl_value"],
        "optim.lr=3e-3",
        "train={batch: 2, steps: 12, log_rollouts: 0}",
    ]
    folder = train_rl(load_config(RLConfig, layers))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["reward/mean"] for line in lines]
    assert sum(rewards[:2]) / 2 < 0.3
    assert sum(rewards[-3:]) / 3 > 0.5
    assert all("value/loss" in line for line in lines)


@pytest.mark.parametrize("name", RUNS)
def test_5_and_resume_5_equals_10(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REWARDS, "letters", letters)
    small = [
        "task.rewards={letters: 1.0}",
        "decoding={max_new_tokens: 6, temperature: 1.0}",
        "algorithm={group_size: 2, updates: 2}",
        "optim.lr=1e-3",
        "train.batch=2",
    ]

    def run(folder: str, *more: str) -> Path:
        layers = [f"output={tmp_path / folder}", *SHORT, RUNS[name], *small, *more]
        return train_rl(load_config(RLConfig, layers))

    assert_resume_changes_nothing(run, tmp_path)
    whole, halves = (checkpoints(tmp_path / folder)[-1] / CRITIC for folder in ("whole", "halves"))
    for file in ("trained.safetensors", "optimizer.safetensors"):
        tensors, others = load_file(whole / file), load_file(halves / file)
        assert tensors.keys() == others.keys() and all(torch.equal(t, others[n]) for n, t in tensors.items())
    assert load_file(whole / "trained.safetensors")["value"].abs().max() > 0


def test_a_run_begun_without_a_critic_does_not_resume_with_one(tmp_path: Path) -> None:
    layers = [f"output={tmp_path / 'run'}", *SHORT, "decoding.temperature=1.0", "train.steps=1", NO_CRITIC]
    train_rl(load_config(RLConfig, layers))
    with pytest.raises(DareError, match=r"algorithm\.critic it began with"):
        train_rl(load_config(RLConfig, [*layers, RUNS["tracerl_value"], "resume=true", "train.steps=2"]))


def test_the_plan_counts_the_value_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for algorithm, expected in ((NO_CRITIC, False), (RUNS["ppo"], True)):
        plan("rl", [f"output={tmp_path / 'run'}", *SHORT, "decoding.temperature=1.0", algorithm])
        printed = capsys.readouterr().out
        assert ("value model in memory" in printed and "0.01" in printed) == expected
