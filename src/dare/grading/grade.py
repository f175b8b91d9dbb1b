"""What the rewards of a task make of one answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dare.errors import DareError
from dare.grading.config import RewardConfig
from dare.grading.reading import Reading
from dare.rewards.registry import FORMS, LEARNED

Rewards = Mapping[str, RewardConfig]
"""Label -> settings."""


@dataclass(frozen=True)
class Grade:
    """``total`` is the weighted sum; ``scores`` one entry per reward, ``parts`` those of rewards that give records.

    ``parsed`` False if any found no answer; ``correct``: every reward that decides gave full marks, 1.0 or more.
    ``failed`` tells that a reward did, ``dropped`` that the answer is left out for it.
    """

    total: float
    scores: Mapping[str, float]
    parsed: bool
    correct: bool
    parts: Mapping[str, float] = field(default_factory=dict)
    failed: bool = False
    dropped: bool = False


def grade_of(found: Mapping[str, Reading], rewards: Rewards, *, drop: bool) -> Grade:
    """Put what each reward gave together; ``drop`` answers over which a reward failed."""
    scores = {label: reading.score or 0.0 for label, reading in found.items()}
    return Grade(
        total=sum(rewards[label].weight * score for label, score in scores.items()),
        scores=scores,
        parsed=all(reading.score is not None for reading in found.values()),
        correct=all(scores[label] >= 1.0 for label in deciding(rewards)),
        parts={f"{label}/{part}": value for label, one in found.items() for part, value in one.parts.items()},
        failed=any(reading.failure for reading in found.values()),
        dropped=drop and any(reading.failure and not reading.excused for reading in found.values()),
    )


def deciding(rewards: Rewards) -> list[str]:
    """Return the rewards that decide whether an answer is correct: those told to, else the verifiers, else all."""
    told = [label for label, one in rewards.items() if one.decides]
    open_ = [label for label, one in rewards.items() if one.decides is None]
    verifiers = [label for label in open_ if (rewards[label].name or label) not in FORMS | LEARNED.keys()]
    return [*told, *verifiers] or [*open_] or [*rewards]


def sound(grades: Sequence[Grade], groups: Sequence[int]) -> list[bool]:
    """Tell which answers are in no group with one that is dropped."""
    lost = {group for group, grade in zip(groups, grades, strict=True) if grade.dropped}
    return [group not in lost for group in groups]


def kept(grades: Sequence[Grade]) -> list[Grade]:
    """Return the grades of answers that are not dropped; none at all: ``DareError``."""
    found = [grade for grade in grades if not grade.dropped]
    if not found:
        raise DareError("a reward failed over every answer, so there is nothing to average; mend it")
    return found
