"""Sudoku of 4x4 or 9x9 cells, written row by row with 0 for an empty cell."""

import functools
import math
import re
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import last_tag

UNSOLVED_CAP = 0.9
_SEPARATORS = re.compile(r"[\s|+\-]")


def is_solution(grid: str) -> bool:
    """Whether every row, column and box of the 16 or 81 characters holds each digit once."""
    return len(grid) in (16, 81) and _complete_share(grid) == 1


def sudoku(completion: str, *, ground_truth: str, puzzle: str, **_: Any) -> float | None:
    """Grade the last ``<answer>`` tag: the fraction of empty cells equal to the stored solution, 0.0 if none is empty.

    The answer's digits are cut or padded with 0 to 16; without a tag: ``None``. As in the published reward (DARE
    release, d1) changed givens are not penalised and a second valid solution does not count; see ``sudoku_plain``.
    """
    answer = last_tag(completion, "answer")
    if answer is None:
        return None
    digits = re.sub(r"[^0-9]", "", answer)[:16].ljust(16, "0")
    return _fraction(digits, ground_truth, puzzle)


def sudoku_plain(completion: str, *, puzzle: str, **_: Any) -> float | None:
    """Grade a completion that is nothing but 16 digits 1-4; anything else is ``None``.

    1.0 for any valid grid that keeps the givens; else 0.9 times the fraction of rows, columns and boxes that hold
    1, 2, 3 and 4, and 0.0 if a given was changed.
    """
    grid = completion.strip()
    return _grade(grid, _cells("puzzle", puzzle)) if re.fullmatch(r"[1-4]{16}", grid) else None


def sudoku9(completion: str, *, puzzle: str, **_: Any) -> float | None:
    """Grade the last ``<answer>`` tag, or the whole text without one, as a 9x9 grid; scores as ``sudoku_plain``.

    A grid is 81 digits, or ``.`` and 0 for empty cells; blanks, line breaks and ``| - +`` between them are skipped.
    Anything else is ``None``.
    """
    answer = last_tag(completion, "answer")
    grid = _grid(completion if answer is None else answer)
    return _grade(grid, _cells9(puzzle)) if grid else None


def _grade(grid: str, givens: str) -> float:
    if any(given not in ("0", cell) for given, cell in zip(givens, grid, strict=True)):
        return 0.0
    complete = _complete_share(grid)
    return 1.0 if complete == 1 else UNSOLVED_CAP * complete


def _complete_share(grid: str) -> float:
    side = math.isqrt(len(grid))
    digits, units = set("123456789"[:side]), _units(side)
    return sum({grid[cell] for cell in unit} == digits for unit in units) / len(units)


@functools.cache
def _units(side: int) -> tuple[tuple[int, ...], ...]:
    """Return the cells of every row, column and box of a grid with ``side`` rows."""
    box = math.isqrt(side)
    rows = [tuple(side * row + column for column in range(side)) for row in range(side)]
    inside = [side * row + column for row in range(box) for column in range(box)]
    corners = [side * row + column for row in range(0, side, box) for column in range(0, side, box)]
    return (*rows, *zip(*rows, strict=True), *(tuple(corner + cell for cell in inside) for corner in corners))


def _fraction(grid: str, ground_truth: str, puzzle: str) -> float:
    solution, givens = _cells("ground_truth", ground_truth), _cells("puzzle", puzzle)
    empty = [cell for cell in range(16) if givens[cell] == "0"]
    return sum(grid[cell] == solution[cell] for cell in empty) / max(len(empty), 1)


def _cells(column: str, text: str) -> str:
    cells = text.strip()
    if not re.fullmatch(r"[0-4]{16}", cells):
        raise DareError(f"{column} is {text!r}; a 4x4 sudoku needs 16 digits 0-4")
    return cells


def _cells9(puzzle: str) -> str:
    cells = _grid(puzzle)
    if cells is None:
        raise DareError(f"puzzle is {puzzle!r}; a 9x9 sudoku needs 81 digits, 0 or '.' for an empty cell")
    return cells


def _grid(text: str) -> str | None:
    cells = _SEPARATORS.sub("", text).replace(".", "0")
    return cells if re.fullmatch(r"[0-9]{81}", cells) else None
