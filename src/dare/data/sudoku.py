"""4x4 sudoku problems for a model trained from nothing: 16 digits with 0 for empty, answered by 16 digits."""

import random
from functools import cache
from itertools import permutations

from dare.data.splits import check_request, split_of
from dare.errors import DareError
from dare.rewards.sudoku import is_solution
from dare.types import Example

EMPTY_CELLS = range(5, 10)
MAX_TEST = 100_000


def sudoku_small(count: int, seed: int, split: str) -> list[Example]:
    """Return puzzles with 5 to 9 empty cells, cut from random grids; where several solutions fit, any one counts.

    ``split`` is ``train`` or ``test``; a puzzle lies in one of them, and no test puzzle comes twice.
    """
    check_request("sudoku_small", count, split)
    if split == "test" and count > MAX_TEST:
        raise DareError(f"sudoku_small test count is {count}; ask for at most {MAX_TEST}")
    rng, seen = random.Random(f"sudoku_small:{seed}:{split}"), set()
    examples: list[Example] = []
    while len(examples) < count:
        solution = rng.choice(all_grids())
        empty = set(rng.sample(range(16), rng.choice(EMPTY_CELLS)))
        puzzle = "".join("0" if cell in empty else digit for cell, digit in enumerate(solution))
        if split_of(puzzle) == split and not (split == "test" and puzzle in seen):
            seen.add(puzzle)
            examples.append(_example(puzzle, solution, len(examples)))
    return examples


def _example(puzzle: str, solution: str, index: int) -> Example:
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
