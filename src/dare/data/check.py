"""Every row of a source looked at: what is wrong with the bad ones, and how long the good ones are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dare.data.config import TaskConfig
from dare.data.opened import open_place
from dare.data.pairs import pair_of
from dare.data.row import Row, RowError
from dare.data.shapes import Shape, first_shape
from dare.data.span import split_slice
from dare.data.tables import cut
from dare.errors import DareError
from dare.types import Example

Measure = Callable[[Example], tuple[int, int]]
"""The lengths of an example's prompt and answer; ``DareError`` where it cannot be rendered."""


@dataclass
class Finding:
    """What a source holds: the ``shapes`` of its rows, their number, the number of ``bad`` ones and the first of them.

    ``prompts`` and ``answers`` are the lengths of the others; ``broken`` says why the source could not be read on.
    """

    name: str
    shapes: list[str] = field(default_factory=list)
    rows: int = 0
    bad: int = 0
    errors: list[RowError] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    broken: str | None = None

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.bad and self.broken is None and self.rows > 0


def check_source(name: str, measure: Measure, task: TaskConfig, keep: int) -> Finding:
    """Read every row of a source; ``task`` may name its columns. The first ``keep`` errors are kept."""
    finding = Finding(name)
    try:
        where, span = split_slice(name)
        table = cut(open_place(where, Path(), "train", stream=False), span, None)
        shapes: dict[str, Shape] = {}
        for row in table.read():
            _look(row, shapes, measure, task, finding, keep)
        finding.shapes = list(dict.fromkeys(shape.name for shape in shapes.values()))
    except DareError as error:
        finding.broken = str(error)
    return finding


def _look(
    row: Row | RowError, shapes: dict[str, Shape], measure: Measure, task: TaskConfig, finding: Finding, keep: int
) -> None:
    finding.rows += 1
    try:
        lengths = [measure(example) for example in _examples(row, shapes, task)]
    except DareError as error:
        finding.bad += 1
        if len(finding.errors) < keep:
            finding.errors.append(_placed(error, row))
        return
    finding.prompts += [prompt for prompt, _ in lengths]
    finding.answers += [answer for _, answer in lengths if answer]


def _examples(row: Row | RowError, shapes: dict[str, Shape], task: TaskConfig) -> list[Example]:
    if isinstance(row, RowError):
        raise row
    shape = shapes.get(row.source) or shapes.setdefault(row.source, first_shape(row, task))
    convert = shape.grade or shape.learn
    return convert(row, task) if convert else list(pair_of(row))


def _placed(error: DareError, row: Row | RowError) -> RowError:
    """What has no place of its own is of the row that was looked at."""
    if isinstance(error, RowError):
        return error
    assert isinstance(row, Row)
    problem, _, fix = str(error).rpartition("; ")
    return RowError(row.source, row.number, "", problem, fix)
