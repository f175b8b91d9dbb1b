"""The part of a source that a run takes: ``rows.jsonl[100:200]``, ``rows.jsonl[:10%]``, ``rows.jsonl[-500:]``."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from dare.errors import DareError

_PLACE = r"-?\d+|\d+%"
_SLICE = re.compile(rf"(?P<where>.+)\[(?P<start>{_PLACE})?:(?P<stop>{_PLACE})?\]")


@dataclass(frozen=True)
class Span:
    """``start`` and ``stop`` as written: a row number, one counted from the end, a share of the rows, or empty.

    Shares are rounded down, so that ``[:10%]`` and ``[10%:]`` meet and do not overlap.
    """

    start: str
    stop: str

    def places(self, count: Callable[[], int]) -> tuple[int, int | None]:
        """Return the rows from and up to which to read; ``count`` is asked only where the answer depends on it."""
        start = _place(self.start, count) if self.start else 0
        stop = _place(self.stop, count) if self.stop else None
        if stop is not None and stop <= start:
            raise DareError(f"slice [{self.start}:{self.stop}] takes no row (from {start} up to {stop}); widen it")
        return start, stop


def split_slice(source: str) -> tuple[str, Span | None]:
    """Return a source's name without its slice, and the slice."""
    found = _SLICE.fullmatch(source)
    if found is None:
        return source, None
    return found["where"], Span(found["start"] or "", found["stop"] or "")


def is_word(name: str) -> bool:
    """Tell the name of an embedded task from that of a file, folder or dataset, which has a dot, slash or colon."""
    return re.fullmatch(r"\w+", name) is not None


def _place(text: str, count: Callable[[], int]) -> int:
    if text.endswith("%"):
        return count() * int(text[:-1]) // 100
    return max(0, count() + int(text)) if text.startswith("-") else int(text)
