"""How the rewards are doing: failures and latency since the last time somebody asked."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dare.grading.reading import Reading


class Counts:
    """Sums per reward, and the first failure of each."""

    def __init__(self) -> None:
        self._failed: dict[str, list[bool]] = defaultdict(list)
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._first: dict[str, str] = {}
        self._told: set[str] = set()

    def add(self, readings: Iterable[Mapping[str, Reading]]) -> None:
        """Count the readings of some answers."""
        for label, reading in (pair for one in readings for pair in one.items()):
            self._failed[label].append(reading.failure is not None)
            if reading.seconds is not None:
                self._seconds[label].append(reading.seconds)
            if reading.failure is not None:
                self._first.setdefault(label, reading.failure)

    def take(self) -> dict[str, float]:
        """Return ``reward/NAME/failed``, a share, and ``time/reward/NAME``, mean seconds of a call; begin anew."""
        means = {f"reward/{label}/failed": sum(found) / len(found) for label, found in self._failed.items()}
        means |= {f"time/reward/{label}": sum(found) / len(found) for label, found in self._seconds.items()}
        self._failed.clear()
        self._seconds.clear()
        return means

    def news(self) -> list[str]:
        """Return the first failure of each reward, once."""
        new = [label for label in self._first if label not in self._told]
        self._told.update(new)
        return [f"reward {label!r} failed: {self._first[label]}" for label in new]
