"""Grade answers with the weighted rewards of a task; training and evaluation grade through this one class."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from dare.errors import DareError
from dare.grading.choose import choose
from dare.grading.config import GradingConfig, RewardConfig
from dare.grading.counts import Counts
from dare.grading.grade import Grade, Rewards, grade_of
from dare.grading.interface import TRAJECTORY
from dare.grading.pool import Pool
from dare.grading.reading import Reading
from dare.grading.scorer import Row, Scorer, here
from dare.rewards.registry import DEFAULT_REWARD, LEARNED
from dare.traces.trace import Trace, spelled
from dare.types import Example

Trajectories = Callable[[], Sequence[Trace | None]]
"""Makes the trace of every completion; called only where a reward looks at them."""

DRY_ROWS = 3


class Grader:
    """Grades with ``rewards``, or without any with the usual one of each row's ``data_source``.

    It may own processes; use it as a context manager to end them, else they end with this one.
    """

    def __init__(self, rewards: Rewards | None, grading: GradingConfig | None = None):
        self.rewards, self.grading = rewards, grading or GradingConfig()
        self.counts = Counts()
        self._pool = Pool(self.grading.workers, self.grading.memory_mb)
        self._scorers: dict[str, Scorer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def check(self, examples: Sequence[Example]) -> None:
        """Try the rewards on three rows of each data source, on the worked answer where there is one.

        ``DareError``: a source without a usual reward; a reward that does not exist, that fails, or that a row lacks a
        column for. A learned reward, whose calls may cost money, is made but not called.
        """
        sources: dict[str, list[Example]] = {}
        for example in examples:
            sources.setdefault(str(example.columns.get("data_source")), []).append(example)
        for rows in sources.values():
            self._try(rows[:DRY_ROWS])
            for label, setting in self._chosen(rows[0]).items():
                self._scorer(label, setting).check(self._rows([""] * len(rows), rows))

    def grade(
        self, completions: Sequence[str], examples: Sequence[Example], trajectories: Trajectories | None = None
    ) -> list[Grade]:
        """Grade each completion against its row, and count; see ``GradingConfig.on_failure`` for what fails."""
        chosen = [self._chosen(example) for example in examples]
        settings = {label: setting for rewards in chosen for label, setting in rewards.items()}
        looked = any(self._scorer(label, setting).interface.trajectory for label, setting in settings.items())
        rows = self._rows(completions, examples, trajectories() if looked and trajectories else None)
        readings: list[dict[str, Reading]] = [{} for _ in rows]
        for label, setting in settings.items():
            places = [place for place, rewards in enumerate(chosen) if label in rewards]
            found = self._scorer(label, setting).score([rows[place] for place in places])
            for place, reading in zip(places, found, strict=True):
                self._allow(label, reading, rows[place])
                readings[place][label] = reading
        self.counts.add(readings)
        drop = self.grading.on_failure == "drop"
        return [grade_of(found, rewards, drop=drop) for found, rewards in zip(readings, chosen, strict=True)]

    def metrics(self) -> dict[str, float]:
        """Return what was counted since the last call, and what learned rewards count themselves, since the start."""
        scorers = self._scorers.items()
        told = {f"reward/{label}/{name}": value for label, one in scorers for name, value in one.told().items()}
        return {**self.counts.take(), **told}

    def _try(self, examples: Sequence[Example]) -> None:
        rewards = self._chosen(examples[0])
        texts = [example.answer or str(example.columns.get("ground_truth") or "") for example in examples]
        rows = self._rows(texts, examples, [spelled(text) for text in texts])
        for label, setting in rewards.items():
            if (setting.name or label) in LEARNED:
                continue
            for row, reading in zip(rows, self._scorer(label, setting).score(rows), strict=True):
                if reading.failure:
                    raise DareError(_complaint(label, reading, row))

    def _chosen(self, example: Example) -> Rewards:
        if self.rewards:
            return self.rewards
        source = str(example.columns.get("data_source"))
        if source not in DEFAULT_REWARD:
            raise DareError(f"data_source {source!r} has no usual reward; set task.rewards, for example {{boxed: 1.0}}")
        return {DEFAULT_REWARD[source]: RewardConfig()}

    def _scorer(self, label: str, setting: RewardConfig) -> Scorer:
        if label not in self._scorers:
            apart = self._pool.run if self.grading.workers else here
            self._scorers[label] = choose(label, setting, self.grading, apart)
        return self._scorers[label]

    def _rows(
        self, completions: Sequence[str], examples: Sequence[Example], traces: Sequence[Trace | None] | None = None
    ) -> list[Row]:
        """Put each row's prompt and its trajectory beside the dataset's own columns."""
        added = [
            {**example.columns, "prompt": example.prompt, TRAJECTORY: trace}
            for example, trace in zip(examples, traces or [None] * len(examples), strict=True)
        ]
        return list(zip(completions, added, strict=True))

    def _allow(self, label: str, reading: Reading, row: Row) -> None:
        if reading.failure and not reading.excused and self.grading.on_failure == "fail":
            raise DareError(
                f"{_complaint(label, reading, row)}; mend it, or set task.grading.on_failure to zero or drop"
            )


def _complaint(label: str, reading: Reading, row: Row) -> str:
    """Name the reward, the sample and what went wrong."""
    completion, columns = row
    shown = repr(completion[:80]) + ("..." if len(completion) > 80 else "")
    return f"reward {label!r} failed on row {columns.get('row', '?')}, completion {shown}: {reading.failure}"
