"""What a reward returned, read as a score."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_PARTS = 64


@dataclass(frozen=True)
class Reading:
    """``score`` None: no answer could be read. ``parts`` of a record; ``failure`` why there is no score at all, which
    is ``excused`` where the completion is to blame and not the reward.

    ``seconds`` the call took; None where it was not made, since an equal one was known.
    """

    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    excused: bool = False
    seconds: float | None = None


def plain(value: Any) -> Any:
    """Return what a reward gave as JSON-ready values; what is no number, record or ``None`` becomes its type's name.

    Numbers of numpy and torch are numbers.
    """
    if value is None or isinstance(value, int | float):
        return value if value is None else float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in [*value.items()][: MOST_PARTS + 1]}
    if hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0:
        return float(value)
    return f"a {type(value).__name__}"


def read(value: Any, seconds: float | None) -> Reading:
    """Read what ``plain`` returned. A record counts by its part ``score``, else by the sum of its parts."""
    if isinstance(value, Mapping):
        wrong = [name for name, part in value.items() if not _is_score(part)]
        if wrong or not 0 < len(value) <= MOST_PARTS:
            problem = f"{value[wrong[0]]} as {wrong[0]!r}" if wrong else f"a record of {len(value)} parts"
            return _no_score(problem, seconds)
        return Reading(value.get("score", sum(value.values())), dict(value), seconds=seconds)
    if value is None or _is_score(value):
        return Reading(value, seconds=seconds)
    return _no_score(value, seconds)


def _is_score(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _no_score(found: Any, seconds: float | None) -> Reading:
    return Reading(failure=f"it gave {found}; a finite number, a record of them or None is expected", seconds=seconds)
