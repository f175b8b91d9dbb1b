"""Rows that do not fit into memory: read and shuffled window by window."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from dare.data.items import Item
from dare.data.loader import permutation
from dare.data.row import Row, RowError, checked
from dare.data.tables import Table
from dare.errors import DareError

Prepare = Callable[[int, list[Row]], list[Item]]
"""Tokenise the rows of a window, given the place of the first in the source, and leave out those that do not fit."""


class Windows:
    """Draws from a table of which ``size`` rows are in memory at a time.

    A window of rows is read, tokenised and shuffled; windows follow one another as in the source, epoch after epoch.
    The shuffle is a function of (seed, epoch, the window's first row), so a cursor of three numbers resumes exactly:
    the window is read again. Two rows further apart than ``size`` never change places.
    """

    def __init__(self, table: Table, prepare: Prepare, size: int, seed: int):
        self.table, self.prepare, self.size, self.seed = table, prepare, size, seed
        self.epoch, self.start, self.taken = 0, 0, 0
        self._window: list[Item] = []
        self._read = 0
        self._rows: Iterator[Row | RowError] | None = None
        self._fruitful = False

    def draw(self) -> Item:
        """See ``Draws``."""
        if self._rows is None:
            self._rows = self.table.read(self.start)
            self._fill()
        while self.taken >= len(self._window):
            self._advance()
        self.taken += 1
        return self._window[self.taken - 1]

    def first_window(self) -> list[Item]:
        """Return the usable rows of the first window in which there are any; what is drawn next is as before."""
        state = self.state_dict()
        self.draw()
        rows = list(self._window)
        self.load_state_dict(state)
        return rows

    def state_dict(self) -> dict[str, Any]:
        """See ``Draws``."""
        return {"epoch": self.epoch, "start": self.start, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Draws``."""
        self.epoch, self.start, self.taken = state["epoch"], state["start"], state["taken"]
        self._rows, self._fruitful = None, self.start > 0  # what came before was of use, or it had been an error

    def _advance(self) -> None:
        self.start, self.taken = self.start + self._read, 0
        self._fill()
        if not self._read:
            if not self._fruitful:
                raise DareError(f"{self.table.name}: no row of a whole pass can be used; see dare data check")
            self.epoch, self.start, self._fruitful = self.epoch + 1, 0, False
            self._rows = self.table.read()
            self._fill()

    def _fill(self) -> None:
        assert self._rows is not None
        rows = [checked(row) for row in islice(self._rows, self.size)]
        items = self.prepare(self.start, rows) if rows else []
        order = permutation(len(items), self.seed, "window", self.epoch, self.start)
        self._window = [replace(items[place], epoch=self.epoch) for place in order]
        self._read, self._fruitful = len(rows), self._fruitful or bool(items)
