"""Tokenise the sources of a split, from a cache where there is one, or window by window."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from dare.data.cache import cache_key, cached
from dare.data.config import Split, TaskConfig
from dare.data.encode import Limits, fit, need_rows
from dare.data.examples import Kind, fingerprint_names, read_names
from dare.data.items import Item, Items, Source
from dare.data.loader import Shuffled
from dare.data.opened import embedded, open_sources
from dare.data.packing import pack_documents
from dare.data.row import Row
from dare.data.span import split_slice
from dare.data.stream import Windows
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.models.tokenizer import PreTrainedTokenizerBase

T = TypeVar("T")
_SOURCE, _ROW = 2**56, 2**20
"""Numbers apart that the noise of streamed sources and of their rows is keyed by."""


@dataclass(frozen=True)
class Loading(Generic[T]):
    """How the rows of one split become items: ``make`` tokenises one example, given its number."""

    task: TaskConfig
    split: Split
    kind: Kind[T]
    make: Callable[[int, T], Item]
    tokenizer: PreTrainedTokenizerBase
    spec: ModelSpec
    limits: Limits

    def load(self) -> Items:
        """Tokenise everything."""
        rows: list[Item] = []
        sources, first, dropped, cut = [], 0, 0, 0
        for names, weight in self.task.mixture(self.split):
            items, ungraded = self._items(names)
            kept, shortened = self._fitting([replace(item, index=first + item.index) for item in items])
            need_rows(kept, len(items), self.task, self.split, self.limits)
            rows += kept
            sources.append(Source(partial(Shuffled, kept), weight))
            first, cut, dropped = first + len(items), cut + shortened, dropped + ungraded + len(items) - len(kept)
        return Items(rows, dropped, cut, tuple(sources))

    def stream(self) -> Items:
        """Tokenise the first window of each source; the others when they are drawn from."""
        rows: list[Item] = []
        sources = []
        for number, (names, weight) in enumerate(self.task.mixture(self.split)):
            windows = self._windows(number, names)
            rows += windows(0).first_window()
            sources.append(Source(windows, weight))
        return Items(rows, 0, 0, tuple(sources), self.task.stream)

    def _items(self, names: list[str]) -> tuple[list[Item], int]:
        def build() -> tuple[list[Item], int]:
            examples, empty = read_names(names, self.task, self.split, self.kind)
            return self._made(list(enumerate(examples)), 0), empty

        return cached(self.task.cache, partial(self._key, names), build)

    def _made(self, numbered: list[tuple[int, T]], first: int) -> list[Item]:
        items = [self.make(number, example) for number, example in numbered]
        if self.task.pack is None:
            return items
        return pack_documents(items, self.task.pack, self.spec, first)

    def _fitting(self, items: list[Item]) -> tuple[list[Item], int]:
        return (items, 0) if self.task.pack else fit(items, self.task, self.split, self.limits)

    def _key(self, names: list[str]) -> str:
        task = self.task
        settings = (task.question_column, task.answer_column, task.turns, task.rendered, task.pack, task.seed)
        content = fingerprint_names(names, task, self.split, self.kind.known)
        return cache_key(self.tokenizer, content, self.kind.name, settings, self.spec.eos_ids)

    def _windows(self, number: int, names: list[str]) -> Callable[[int], Windows]:
        for name in names:
            where, _ = split_slice(name)
            if embedded(where, self.task, self.split, self.kind.known, self.kind.name):
                raise DareError(f"task.stream reads files and datasets; {where} is generated, set task.stream=null")
        assert self.task.stream is not None
        table = open_sources(names, self.task, self.split, stream=True)
        return partial(Windows, table, partial(self._prepared, number * _SOURCE), self.task.stream)

    def _prepared(self, base: int, first: int, rows: list[Row]) -> list[Item]:
        numbered = [
            (base + (first + place) * _ROW + inner, example)
            for place, row in enumerate(rows)
            for inner, example in enumerate(self.kind.convert(row))
        ]
        return self._fitting(self._made(numbered, base + first * _ROW))[0]
