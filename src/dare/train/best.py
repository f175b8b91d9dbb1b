"""Which step of a run had the best value of a metric."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dare.errors import DareError, nearest
from dare.train.log import METRICS

_TAIL = 2**16
"""Bytes; several lines of metrics."""


@dataclass
class Best:
    """``metric`` as the run logs it, ``goal`` "min" or "max"; ``step`` None: no value so far."""

    metric: str
    goal: str
    value: float | None = None
    step: int | None = None

    def is_new(self, step: int, folder: Path) -> bool:
        """Look up what the run has logged for ``step``; remember it and return True where it beats all before it.

        Raises ``DareError`` where a step has no such metric; ``eval/`` ones need not be there at every step.
        """
        metrics = _last_metrics(folder)
        if self.metric not in metrics:
            if not self.metric.startswith("eval/") and not metrics.get("skipped_updates"):
                names = [name for name in metrics if name not in ("phase", "step")]
                raise DareError(f"train.keep_best: no metric {self.metric!r} is logged; {nearest(self.metric, names)}")
            return False
        value = metrics[self.metric]
        if value is None or (self.value is not None and not self._beats(value, self.value)):
            return False
        self.value, self.step = value, step
        return True

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return asdict(self)

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue after ``state``; that of another metric or goal says nothing."""
        if state and (state["metric"], state["goal"]) == (self.metric, self.goal):
            self.value, self.step = state["value"], state["step"]

    def _beats(self, value: float, other: float) -> bool:
        return value > other if self.goal == "max" else value < other


def parse_best(text: str | None) -> Best | None:
    """Read ``METRIC:max`` or ``METRIC:min``; raises ``ValueError``."""
    if text is None:
        return None
    metric, _, goal = text.rpartition(":")
    if not metric or goal not in ("min", "max"):
        raise ValueError(f"write METRIC:max or METRIC:min, such as eval/accuracy:max; found {text!r}")
    return Best(metric, goal)


def _last_metrics(folder: Path) -> dict[str, Any]:
    with (folder / METRICS).open("rb") as file:
        file.seek(max(0, (folder / METRICS).stat().st_size - _TAIL))
        return json.loads(file.read().splitlines()[-1])
