"""Each algorithm raises the reward of a task it can learn within seconds: answer with the digit 1."""

import json
from pathlib import Path

import pytest

from dare.config import load_config
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.rl import train_rl


def ones(completion: str, **_: object) -> float:
    return completion.count("1") / 8


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
@pytest.mark.parametrize("name", ["d1", "coupled_grpo"])
def test_reward_rises(tmp_path: Path, name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REWARDS, "ones", ones)
    layers = [
        f"output={tmp_path / 'run'}",
        f"model.path={model}",
        "task.train=sudoku_small",
        "task.train_count=50",
        "task.rewards={ones: 1.0}",
        "decoding={max_new_tokens: 8, block_size: 8, steps: 2, temperature: 1.0}",
        f"algorithm={{name: {name}, group_size: 8, updates: 2, kl_coef: 0.0}}",
        "optim.lr=1e-3",
        "train={batch: 4, steps: 25}",
    ]
    folder = train_rl(load_config(RLConfig, layers))
    rewards = [json.loads(line)["reward/mean"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(rewards[:2]) / 2 < 0.05
    assert sum(rewards[-5:]) / 5 > 0.2
