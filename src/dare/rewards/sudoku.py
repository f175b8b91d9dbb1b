"""4x4 sudoku, written as 16 digits row by row with 0 for an empty cell."""

import re
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import last_tag

UNSOLVED_CAP = 0.9
_UNITS = (
    *(tuple(range(4 * r, 4 * r + 4)) for r in range(4)),
    *(tuple(range(c, 16, 4)) for c in range(4)),
    *(tuple(corner + offset for offset in (0, 1, 4, 5)) for corner in (0, 2, 8, 10)),
)


def is_solution(grid: str) -> bool:
    """Whether every row, column and 2x2 box of the 16 characters holds 1, 2, 3 and 4."""
    return len(grid) == 16 and all({grid[cell] for cell in unit} == set("1234") for unit in _UNITS)


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
    if not re.fullmatch(r"[1-4]{16}", grid):
        return None
    kept = all(given in ("0", cell) for given, cell in zip(_cells("puzzle", puzzle), grid, strict=True))
    complete = sum({grid[cell] for cell in unit} == set("1234") for unit in _UNITS) / len(_UNITS)
    return 0.0 if not kept else 1.0 if complete == 1 else UNSOLVED_CAP * complete


def _fraction(grid: str, ground_truth: str, puzzle: str) -> float:
    solution, givens = _cells("ground_truth", ground_truth), _cells("puzzle", puzzle)
    empty = [cell for cell in range(16) if givens[cell] == "0"]
    return sum(grid[cell] == solution[cell] for cell in empty) / max(len(empty), 1)


def _cells(column: str, text: str) -> str:
    cells = text.strip()
    if not re.fullmatch(r"[0-4]{16}", cells):
        raise DareError(f"{column} is {text!r}; a 4x4 sudoku needs 16 digits 0-4")
    return cells
