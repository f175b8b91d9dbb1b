"""The examples behind the names of a split: generated, or read from files and datasets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dare.data.config import GENERATED_ROWS, Split, TaskConfig
from dare.data.opened import embedded, open_source
from dare.data.row import Row, checked
from dare.data.shapes import Shape, is_ungraded, shape_of
from dare.data.span import split_slice
from dare.data.tables import digest
from dare.errors import DareError
from dare.types import Example

T = TypeVar("T")
Generate = Callable[[int, int, str], Sequence[T]]
"""``(count, seed, split)`` to examples or pairs of them, a pure function of the three."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of rows: what the embedded tasks that give them are called, those tasks, and the conversion of a row."""

    name: str
    known: Mapping[str, Generate[T]]
    convert: Callable[[Row], list[T]]


class Converter:
    """Rows to examples to learn from (``answers``) or to grade, by the shape of the first row of their file."""

    def __init__(self, task: TaskConfig, answers: bool):
        self.task, self.answers = task, answers
        self._shapes: dict[str, Shape] = {}

    def __call__(self, row: Row) -> list[Example]:
        """Return the examples of a row; none where it is to be graded and has no ground truth."""
        if row.source not in self._shapes:
            self._shapes[row.source] = shape_of(row, self.task, self.answers)
        if not self.answers and is_ungraded(row):
            return []
        shape = self._shapes[row.source]
        convert = shape.learn if self.answers else shape.grade
        assert convert is not None
        return convert(row, self.task)


def read_names(names: Sequence[str], task: TaskConfig, split: Split, kind: Kind[T]) -> tuple[list[T], int]:
    """Return the rows behind ``names`` and the number of rows that gave none; a name without any is refused."""
    found: list[T] = []
    dropped = 0
    for name in names:
        rows, empty = _read(name, task, split, kind)
        if not rows:
            raise DareError(f"{task.root / name} has no rows to use; give a file with at least one")
        found += rows
        dropped += empty
    return found, dropped


def fingerprint_names(names: Sequence[str], task: TaskConfig, split: Split, known: Mapping[str, Generate[Any]]) -> str:
    """Return a hash of the content behind ``names``: generated rows, the bytes of files, a dataset's own hash."""
    hashes, stream = [], bool(task.stream) and split == "train"
    for name in names:
        rows = _generated(name, task, split, known)
        hashes.append(open_source(name, task, split, stream).fingerprint() if rows is None else digest(rows))
    return digest(*hashes)


def _read(name: str, task: TaskConfig, split: Split, kind: Kind[T]) -> tuple[list[T], int]:
    generated = _generated(name, task, split, kind.known, kind.name)
    if generated is not None:
        return list(generated), 0
    found = [kind.convert(checked(row)) for row in open_source(name, task, split).read()]
    return [example for examples in found for example in examples], sum(not examples for examples in found)


def _generated(
    name: str, task: TaskConfig, split: Split, known: Mapping[str, Generate[T]], kind: str = "task"
) -> Sequence[T] | None:
    where, span = split_slice(name)
    if not embedded(where, task, split, known, kind):
        return None
    rows = known[where](task.limit(split) or GENERATED_ROWS, task.seed, split)
    start, stop = span.places(lambda: len(rows)) if span else (0, None)
    return rows[start:stop]
