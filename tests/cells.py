"""The support matrix: every algorithm on every kind of attention."""

import json
from pathlib import Path
from typing import get_args

from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.registry import AnyAlgorithm

ROOT = Path(__file__).parents[1]
MODELS = {"full": "tiny:masked", "block_causal": "tiny:block"}
ALGORITHMS: dict[str, type[AlgorithmConfig]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(AnyAlgorithm)[0])
}
CELLS = [(name, kind) for name in ALGORITHMS for kind in MODELS]
SUPPORTED = [(name, kind) for name, kind in CELLS if kind not in ALGORITHMS[name].refuses]
REFUSED = [cell for cell in CELLS if cell not in SUPPORTED]


def layers(name: str, kind: str, output: Path) -> list[str]:
    """A run of seconds of one cell: the task, the algorithm's own layer, few tokens."""
    return [
        "task={train: digit_sums, train_count: 50, rewards: {toy: 1.0}}",
        "decoding.temperature=1.0",
        str(ROOT / "configs" / "algorithm" / f"{name}.yaml"),
        "decoding={max_new_tokens: 8, block_size: 8, steps: 8}",
        f"model.path={MODELS[kind]}",
        f"output={output}",
    ]


def masked_run(output: Path, algorithm: str, decoding: str, steps: int) -> list[str]:
    """A run of ``tiny:masked`` that learns within seconds, rewarded by ``ones``."""
    return [
        f"output={output}",
        "model.path=tiny:masked",
        "task={train: sudoku_small, train_count: 50, rewards: {ones: 1.0}}",
        f"decoding={{max_new_tokens: 8, block_size: 8, steps: 2, temperature: 1.0, {decoding}}}",
        f"algorithm={{{algorithm}, group_size: 8, kl_coef: 0.0}}",
        "optim.lr=1e-3",
        f"train={{batch: 4, steps: {steps}}}",
    ]


def assert_reward_rises(folder: Path) -> None:
    """The mean reward of a run starts near zero and ends well above."""
    rewards = [json.loads(line)["reward/mean"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(rewards[:2]) / 2 < 0.05
    assert sum(rewards[-5:]) / 5 > 0.2


def ones(completion: str, **_: object) -> float:
    """A task that can be learnt within seconds: answer with the digit 1."""
    return completion.count("1") / 8


def letters(completion: str, **_: object) -> float:
    """A reward that differs between almost any two answers."""
    return sum(map(ord, completion)) % 97 / 97
