"""Grade the form of a completion, whatever it says: its tags, its length, its repetitions. Never ``None``."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from dare.errors import DareError, nearest

TAGS = ("think", "answer")
UNITS = ("words", "characters")


def format(completion: str, *, tags: Sequence[str] = TAGS, **_: Any) -> float:
    """Return 1.0 if the completion is ``<think>…</think> <answer>…</answer>`` and nothing else, otherwise 0.0.

    Each of ``tags`` must be opened once and closed once, in the given order, with only white space outside. What is
    inside may be empty. This is the format reward of DeepSeek-R1 (arXiv 2501.12948), for any list of tags.
    """
    if any(completion.count(mark) != 1 for mark in _marks(tags)):
        return 0.0
    pattern = r"\s*".join(rf"<{re.escape(tag)}>.*?</{re.escape(tag)}>" for tag in tags)
    return float(re.fullmatch(rf"\s*{pattern}\s*", completion, re.DOTALL) is not None)


def tag_count(completion: str, *, tags: Sequence[str] = TAGS, **_: Any) -> float:
    """Return the share of the marks ``<tag>`` and ``</tag>`` of all ``tags`` that occur exactly once, in any order."""
    marks = _marks(tags)
    return sum(completion.count(mark) == 1 for mark in marks) / len(marks)


def length(completion: str, *, shortest: int, longest: int, margin: float, unit: str = "words", **_: Any) -> float:
    """Return 1.0 for a size from ``shortest`` to ``longest``, falling linearly to 0.0 at ``margin`` outside the band.

    Sizes are in ``unit``: ``words`` (cut at white space) or ``characters``. A margin of 0 makes the edge hard.
    """
    if not 0 <= shortest <= longest or margin < 0:
        raise DareError(f"length: {shortest=}, {longest=}, {margin=}; needs 0 <= shortest <= longest and margin >= 0")
    size = len(_split(completion, unit))
    outside = max(shortest - size, size - longest, 0)
    return max(0.0, 1.0 - outside / margin) if outside and margin else float(not outside)


def overlong(completion: str, *, limit: int, buffer: int, unit: str = "words", **_: Any) -> float:
    """Return DAPO's soft over-long penalty, from 0.0 down to -1.0 (arXiv 2503.14476, equation 13).

    0 up to ``limit - buffer``, then ``((limit - buffer) - size) / buffer`` up to ``limit``, then -1. DAPO counts
    tokens; a reward sees text, so sizes are in ``unit``, ``words`` or ``characters``. A buffer of 0 makes a hard limit.
    """
    if not 0 <= buffer <= limit:
        raise DareError(f"overlong: {limit=}, {buffer=}; needs 0 <= buffer <= limit")
    size = len(_split(completion, unit))
    if size > limit:
        return -1.0
    return min(0.0, (limit - buffer - size) / buffer) if buffer else 0.0


def repetition(completion: str, *, n: int = 3, unit: str = "words", **_: Any) -> float:
    """Return minus the share of n-grams that repeat an earlier one: ``-(1 - distinct / total)``, in (-1, 0].

    ``total = size - n + 1`` counts the n-grams of ``unit`` (``words`` or ``characters``, without case); a completion
    with fewer than ``n`` gives 0.0. "Demystifying Long CoT" (arXiv 2502.03373, appendix C.2) subtracts a constant at
    every token of a repeated n-gram of 40 tokens; this is its mean over the completion, as one number.
    """
    if n < 1:
        raise DareError(f"repetition: n is {n}; it must be at least 1")
    parts = _split(completion.casefold(), unit)
    total = len(parts) - n + 1
    if total < 1:
        return 0.0
    distinct = len(set(zip(*(islice(parts, start, None) for start in range(n)), strict=False)))
    return distinct / total - 1.0


def _marks(tags: Sequence[str]) -> list[str]:
    if isinstance(tags, str) or not len(tags) or not all(re.fullmatch(r"[\w-]+", tag) for tag in tags):
        raise DareError(f"tags is {tags!r}; write a list of names such as [think, answer]")
    return [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]


def _split(text: str, unit: str) -> Sequence[str]:
    if unit not in UNITS:
        raise DareError(f"unit is {unit!r}; {nearest(unit, UNITS)}")
    return text.split() if unit == "words" else text
