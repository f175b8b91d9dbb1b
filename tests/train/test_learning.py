"""Each algorithm raises the reward of a task it can learn within seconds, on each kind of attention it is defined for.

``make test-learning`` runs all of them over three seeds: other weights, data order and noise. The ordinary tests run
the quick ones over one.
"""

from pathlib import Path

import pytest

from cells import SUPPORTED, assert_reward_rises, layers, ones
from dare.config import load_config
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.rl import train_rl

SMALLER = {
    "bgpo": ["algorithm.draws=4"],
    "coupled_grpo": ["decoding.steps=4", "train.steps=40"],
    "dtreerpo": ["algorithm={roots: 4, branches: 2}"],
    "ebpo": ["algorithm.draws=4"],
    "justgrpo": ["decoding.steps=8"],
    "mdpo": ["algorithm={temperature: 1.0, trained_steps: 2}", "decoding.eos=never"],
    "ppo": ["algorithm.critic.lr=1e-3", "train.steps=20"],
    "spg": ["decoding.steps=4", "train.steps=30"],
    "tracerl": ["algorithm.truncated_is_wrong=false"],
}
"""What lets a run learn within seconds, or keeps the decoder to the algorithm's order."""
QUICK = {"d1", "wd1", "tracerl", "dtreerpo"}
RUNS = [pytest.param(*cell, marks=[] if cell[0] in QUICK else pytest.mark.learning) for cell in SUPPORTED]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))


@pytest.mark.parametrize(("name", "kind"), RUNS)
def test_reward_rises(name: str, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REWARDS, "toy", ones)
    settings = [
        "algorithm={group_size: 8, updates: 2, success_range: null, kl_coef: 0.0}",
        "optim={lr: 1e-3, weight_decay: 0.0, max_grad_norm: 1.0}",
        f"train={{batch: 4, steps: 25, seed: {seed}}}",
        "decoding={steps: 2, temperature: 1.0}",
        *SMALLER.get(name, []),
    ]
    folder = train_rl(load_config(RLConfig, [*layers(name, kind, tmp_path / "run"), *settings]))
    assert_reward_rises(folder)
