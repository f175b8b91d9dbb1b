"""The rewards by name.

A reward is a plain function ``(completion, *, ground_truth, <dataset columns>, **_) -> float | None``: 1.0 is fully
correct, ``None`` means that no answer could be read, which counts as 0 and is counted apart.
"""

from collections.abc import Callable
from types import MappingProxyType

from dare.errors import DareError, nearest
from dare.rewards.arithmetic import countdown, countdown_plain, digit_sums
from dare.rewards.maths import boxed, hashes
from dare.rewards.sudoku import sudoku, sudoku_plain

Reward = Callable[..., float | None]

REWARDS: dict[str, Reward] = {
    "boxed": boxed,
    "digit_sums": digit_sums,
    "hashes": hashes,
    "countdown": countdown,
    "countdown_plain": countdown_plain,
    "sudoku": sudoku,
    "sudoku_plain": sudoku_plain,
}

DEFAULT_REWARD = MappingProxyType(
    {
        "gsm8k": "boxed",
        "openai/gsm8k": "hashes",
        "math": "boxed",
        "math500": "boxed",
        "aime2024": "boxed",
        "aime2025": "boxed",
        "countdown": "countdown",
        "countdown_small": "countdown_plain",
        "digit_sums": "digit_sums",
        "sudoku": "sudoku",
        "sudoku_small": "sudoku_plain",
    }
)
"""The reward of each ``data_source``; a source not named here needs its reward spelled out."""


def reward(name: str) -> Reward:
    """Return the reward called ``name``; an unknown name raises ``DareError``."""
    if name not in REWARDS:
        raise DareError(f"reward is {name!r}, which does not exist; {nearest(name, REWARDS)}")
    return REWARDS[name]
