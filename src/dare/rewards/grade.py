"""Apply weighted reward functions to completions; training and evaluation grade through this one function."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dare.errors import DareError
from dare.rewards.registry import DEFAULT_REWARD, OPTIONS, Value, reward
from dare.types import Example


@dataclass(frozen=True)
class Grade:
    """``total`` is the weighted sum; ``scores`` one entry per function; ``parsed`` False if any found no answer."""

    total: float
    scores: Mapping[str, float]
    parsed: bool

    @property
    def correct(self) -> bool:
        """True when every function gave full marks."""
        return self.parsed and all(score >= 1.0 for score in self.scores.values())


def grade(completions: Sequence[str], examples: Sequence[Example], weights: Mapping[str, float] | None) -> list[Grade]:
    """Grade each completion against its row; ``weights`` None uses the usual reward of the row's data source."""
    return [_grade(text, row, weights or _default(row)) for text, row in zip(completions, examples, strict=True)]


def check_rewards(examples: Sequence[Example], weights: Mapping[str, float] | None) -> None:
    """Raise ``DareError`` for a reward that does not exist or a data source without a usual one."""
    sources = {str(example.columns.get("data_source")): example for example in examples}
    for example in sources.values():
        for name in weights or _default(example):
            reward(name)


def _grade(completion: str, example: Example, weights: Mapping[str, float]) -> Grade:
    columns = {name: value for name, value in example.columns.items() if name not in OPTIONS}
    found = {name: reward(name)(completion, **columns) for name in weights}
    scores = {name: _finite(name, _number(value), completion) for name, value in found.items()}
    total = sum(weights[name] * score for name, score in scores.items())
    return Grade(total, scores, None not in found.values())


def _number(value: Value) -> float:
    return sum(value.values()) if isinstance(value, Mapping) else value or 0.0


def _finite(name: str, score: float, completion: str) -> float:
    if not math.isfinite(score):
        raise DareError(f"reward {name!r} gave {score} for {completion[:80]!r}; it must give a finite number or None")
    return score


def _default(example: Example) -> dict[str, float]:
    source = str(example.columns.get("data_source"))
    if source not in DEFAULT_REWARD:
        raise DareError(f"data_source {source!r} has no usual reward; set task.rewards, for example {{boxed: 1.0}}")
    return {DEFAULT_REWARD[source]: 1.0}
