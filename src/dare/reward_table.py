"""Rewards and scores as tables."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dare.grading.locate import locate
from dare.grading.reading import Reading
from dare.rewards.registry import LEARNED, REWARDS
from dare.traces.trace import printable

_CLOSE = 1e-6
_MOST_PROBLEMS = 20
_WIDTH = 60


@dataclass(frozen=True)
class Tried:
    """A row: its number, what was graded, the score that stands in the file (None: none) and what the reward gave."""

    number: int
    completion: str
    stored: float | None
    reading: Reading

    @property
    def agrees(self) -> bool:
        """Whether the score is the one in the file, where it has one. No answer counts as 0."""
        return self.stored is None or abs((self.reading.score or 0.0) - self.stored) <= _CLOSE


def list_rewards() -> None:
    """Print every reward with the first line of what it says about itself."""
    table = Table("reward", "what it gives", box=SIMPLE_HEAD)
    for name, where in sorted({**REWARDS, **LEARNED}.items()):
        function = locate(where) if isinstance(where, str) else where
        table.add_row(name, Text((inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")))
    Console(highlight=False).print(table)


def print_scores(name: str, column: str, stored: str | None, tried: Sequence[Tried], show: int) -> None:
    """Print the first ``show`` rows, and those that fail or differ; then a summary."""
    console = Console(highlight=False)
    table = Table(Column("row", justify="right"), column, Column(name.rpartition(":")[2], justify="right"))
    table.box = SIMPLE_HEAD
    if stored:
        table.add_column(f"stored {stored}", justify="right")
    shown = [one for place, one in enumerate(tried) if place < show or one.reading.failure or not one.agrees]
    for one in shown[: show + _MOST_PROBLEMS]:
        table.add_row(*_cells(one, stored is not None), style="" if one.agrees else "bold red")
    console.print(table)
    console.print(_summary(tried, stored), soft_wrap=True)


def _cells(one: Tried, stored: bool) -> list[Text]:
    text = printable(" ".join(one.completion.split()))
    cells = [Text(str(one.number)), Text(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"), _told(one.reading)]
    if stored:
        cells.append(Text("" if one.stored is None else f"{one.stored:g}{'' if one.agrees else '  ≠'}"))
    return cells


def _told(reading: Reading) -> Text:
    if reading.failure:
        return Text(reading.failure, "red")
    if reading.score is None:
        return Text("no answer", "dim")
    parts = ", ".join(f"{part} {value:g}" for part, value in reading.parts.items())
    return Text(f"{reading.score:g}{f' ({parts})' if parts else ''}")


def _summary(tried: Sequence[Tried], stored: str | None) -> str:
    scores = [one.reading.score or 0.0 for one in tried]
    seconds = [one.reading.seconds for one in tried if one.reading.seconds is not None]
    counts = {
        "without an answer": sum(one.reading.score is None and not one.reading.failure for one in tried),
        "failed": sum(one.reading.failure is not None for one in tried),
        f"differ from {stored!r}": sum(not one.agrees for one in tried),
    }
    told = "".join(f", {count} {what}" for what, count in counts.items() if count)
    pace = f"{1000 * sum(seconds) / len(seconds):.1f} ms a row" if seconds else ""
    return f"{len(tried)} rows, mean {sum(scores) / len(scores):.3f}{told}; {pace}"
