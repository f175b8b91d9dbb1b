"""Rows behind a name: files and datasets, read from any row on without loading what comes before."""

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from dare.data.row import Fields, Row, RowError
from dare.data.span import Span
from dare.errors import DareError, nearest

_BATCH = 1024
_Read = Iterator[Fields | tuple[str, str]]
"""Columns of a row, or what is wrong with it and the fix."""


class Table(Protocol):
    """Rows in order. ``read`` yields an error in the place of a row that cannot be read, and goes on behind it."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def count(self) -> int:
        """Number of rows; ``DareError`` where only reading all of them would tell."""
        ...

    def read(self, start: int = 0) -> Iterator[Row | RowError]:
        """Yield the rows from number ``start`` on."""
        ...

    def fingerprint(self) -> str:
        """Return a hash of the content."""
        ...


@dataclass(frozen=True)
class FileTable:
    """A .parquet, .jsonl, .json or .csv file; blank lines of a .jsonl file are no rows."""

    path: Path

    def __post_init__(self) -> None:
        if self.path.suffix not in _READERS:
            kind = self.path.suffix or "folder"
            raise DareError(f"{self.path} is of type {kind!r}; give a {KINDS} file")
        if not self.path.is_file():
            raise DareError(f"{self.path} does not exist; {_near_file(self.path)}")

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def count(self) -> int:
        """See ``Table``."""
        if self.path.suffix == ".parquet":
            return self._safely(lambda: pq.read_metadata(self.path).num_rows)
        if self.path.suffix == ".jsonl":
            return self._safely(lambda: sum(1 for _ in _lines(self.path)))
        return sum(1 for _ in self._raw(0))

    def read(self, start: int = 0) -> Iterator[Row | RowError]:
        """See ``Table``."""
        for number, raw in enumerate(self._raw(start), start=start):
            yield RowError(self.name, number, "", *raw) if isinstance(raw, tuple) else Row(self.name, number, raw)

    def fingerprint(self) -> str:
        """Hash the bytes."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _raw(self, start: int) -> _Read:
        rows = _READERS[self.path.suffix](self.path, start)
        while True:
            row = self._safely(lambda: next(rows, None))
            if row is None:
                return
            yield row

    def _safely(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (pa.ArrowException, OSError, ValueError, KeyError, csv.Error) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DareError(f"{self.path} cannot be read as {self.path.suffix}: {reason}; replace it") from error


@dataclass(frozen=True)
class Chain:
    """Tables one after another."""

    tables: Sequence[Table]

    @property
    def name(self) -> str:
        """All names."""
        return ", ".join(table.name for table in self.tables)

    def count(self) -> int:
        """See ``Table``."""
        return sum(table.count() for table in self.tables)

    def read(self, start: int = 0) -> Iterator[Row | RowError]:
        """See ``Table``."""
        for table in self.tables:
            size = table.count() if start else 0
            if start < size or not start:
                yield from table.read(start)
            start = max(0, start - size)

    def fingerprint(self) -> str:
        """Hash the hashes."""
        return digest(*(table.fingerprint() for table in self.tables))


@dataclass(frozen=True)
class Part:
    """The rows ``start`` to ``stop`` (None: the end) of a table, numbered as there."""

    table: Table
    start: int
    stop: int | None

    @property
    def name(self) -> str:
        """That of the table."""
        return self.table.name

    def count(self) -> int:
        """See ``Table``."""
        size = self.table.count()
        return max(0, min(size, size if self.stop is None else self.stop) - self.start)

    def read(self, start: int = 0) -> Iterator[Row | RowError]:
        """See ``Table``."""
        begin = self.start + start
        return islice(self.table.read(begin), None if self.stop is None else max(0, self.stop - begin))

    def fingerprint(self) -> str:
        """Hash the table's hash and the places."""
        return digest(self.table.fingerprint(), self.start, self.stop)


def cut(table: Table, span: Span | None, limit: int | None) -> Table:
    """Return the rows of ``span``, at most ``limit`` of them."""
    start, stop = span.places(table.count) if span else (0, None)
    if limit is not None:
        stop = start + limit if stop is None else min(stop, start + limit)
    return Part(table, start, stop) if start or stop is not None else table


def digest(*parts: object) -> str:
    """Return one hash of several values by their ``repr``."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()


def _near_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"nor does its folder {path.parent}"
    files = [entry.name for entry in path.parent.iterdir() if entry.suffix in _READERS]
    return nearest(path.name, files) if files else f"its folder has no {KINDS} file"


def _parquet(path: Path, start: int) -> _Read:
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if start < size:
            for batch in file.iter_batches(_BATCH, row_groups=[group]):
                yield from batch.slice(start).to_pylist()
                start = max(0, start - len(batch))
        else:
            start -= size


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from (line for line in file if line.strip())


def _jsonl(path: Path, start: int) -> _Read:
    for line in islice(_lines(path), start, None):
        try:
            row = json.loads(line)
        except ValueError as error:
            yield f"not JSON ({error})", "write one object per line"
            continue
        yield row if isinstance(row, dict) else _no_object(row)


def _json(path: Path, start: int) -> _Read:
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, list):
        raise ValueError(f"it holds one {type(rows).__name__}, not a list of rows")
    for row in rows[start:]:
        yield row if isinstance(row, dict) else _no_object(row)


def _csv(path: Path, start: int) -> _Read:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in islice(csv.DictReader(file, strict=True), start, None):
            if None in row or None in row.values():
                yield "more or fewer fields than the header", 'put fields with commas into "quotes"'
            else:
                yield row


def _no_object(row: object) -> tuple[str, str]:
    return f"not a JSON object but {type(row).__name__}", 'write {"column": value, ...}'


_READERS: dict[str, Callable[[Path, int], _Read]] = {
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
}
KINDS = ".parquet, .jsonl, .json or .csv"
"""The files there are readers for."""
