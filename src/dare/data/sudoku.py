"""4x4 sudoku problems for a model trained from nothing: 16 digits with 0 for empty, answered by 16 digits."""

from functools import cache
from itertools import permutations

import numpy as np

from dare.data.splits import check_request, draw, split_of
from dare.rewards.sudoku import is_solution
from dare.types import Example

EMPTY_CELLS = range(6, 11)


def sudoku_small(count: int, seed: int, split: str) -> list[Example]:
    """Return puzzles with 6 to 10 empty cells and exactly one solution, drawn uniformly from all there are.

    ``split`` is ``train`` or ``test``; a solved grid, with all puzzles cut from it, lies in one of them.
    """
    check_request("sudoku_small", count, split)
    grids = [grid for grid in all_grids() if split_of(grid) == split]
    ends = np.cumsum([len(_empty_masks(grid)) for grid in grids])
    examples = []
    for index, which in enumerate(draw("sudoku_small", int(ends[-1]), count, seed, split)):
        place = int(np.searchsorted(ends, which, side="right"))
        mask = int(_empty_masks(grids[place])[which - ends[place]])
        examples.append(_example(grids[place], mask, index))
    return examples


def _example(solution: str, empty_mask: int, index: int) -> Example:
    puzzle = "".join("0" if empty_mask >> cell & 1 else digit for cell, digit in enumerate(solution))
    columns = {"data_source": "sudoku_small", "ground_truth": solution, "puzzle": puzzle, "index": index}
    return Example(({"role": "user", "content": puzzle},), columns, solution)


@cache
def all_grids() -> tuple[str, ...]:
    """Return the 288 solved grids."""
    return tuple(_completions(""))


def _completions(top: str) -> list[str]:
    if len(top) == 16:
        return [top] if is_solution(top) else []
    rows = ["".join(row) for row in permutations("1234")]
    fitting = [row for row in rows if all(row[column] not in top[column::4] for column in range(4))]
    return [grid for row in fitting for grid in _completions(top + row)]


@cache
def _empty_masks(solution: str) -> np.ndarray:
    """Return the bit masks of empty cells (bit i: cell i) that leave ``solution`` the only completion.

    Another grid is a completion exactly when every cell it differs in is empty; differences that contain a smaller
    one add nothing.
    """
    grids = np.array([list(grid) for grid in all_grids()])
    differences = np.unique(((grids != np.array(list(solution))) << np.arange(16)).sum(1)).astype(np.uint16)[1:]
    smallest = differences[((differences[:, None] & differences) == differences).sum(1) == 1]
    masks = _candidate_masks()
    for difference in smallest:
        masks = masks[masks & difference != difference]
    return masks


@cache
def _candidate_masks() -> np.ndarray:
    masks = np.arange(2**16, dtype=np.uint16)
    empty = (masks[:, None] >> np.arange(16, dtype=np.uint16) & 1).sum(1)
    return masks[(empty >= EMPTY_CELLS.start) & (empty < EMPTY_CELLS.stop)]
