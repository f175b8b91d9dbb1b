"""Rewards for tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dare.grading.config import GradingConfig, RewardConfig
from dare.grading.grade import Grade
from dare.grading.grader import Grader
from dare.grading.locate import locate
from dare.rewards.registry import REWARDS
from dare.types import Example


def reward(name: str) -> Callable[..., Any]:
    """The function of a reward."""
    found = REWARDS[name]
    return locate(found) if isinstance(found, str) else found


def grade(
    completions: Sequence[str], examples: Sequence[Example], rewards: Mapping[str, Any] | None, **grading: Any
) -> list[Grade]:
    """Grade with a grader of its own."""
    settings = {name: RewardConfig.model_validate(value) for name, value in (rewards or {}).items()}
    with Grader(settings or None, GradingConfig(**grading)) as grader:
        return grader.grade(completions, examples)
