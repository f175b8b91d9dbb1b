"""The generated tasks by name: problems without end, exact answers, rows shaped like those read from files."""

from collections.abc import Callable

from dare.data.addition import addition_small
from dare.data.countdown import countdown_small
from dare.data.sudoku import sudoku_small
from dare.types import Example

Task = Callable[[int, int, str], list[Example]]
"""``(count, seed, split)`` to examples, a pure function of the three; ``split`` is ``train`` or ``test``."""

TASKS: dict[str, Task] = {
    "addition_small": addition_small,
    "countdown_small": countdown_small,
    "sudoku_small": sudoku_small,
}
