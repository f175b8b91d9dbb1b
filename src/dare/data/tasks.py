"""The generated tasks by name: problems without end, exact answers, rows shaped like those read from files."""

from collections.abc import Callable

from dare.data.countdown import countdown_small
from dare.data.digit_sums import digit_sums
from dare.data.sudoku import sudoku_small
from dare.types import Example

Task = Callable[[int, int, str], list[Example]]
"""``(count, seed, split)`` to examples, a pure function of the three; ``split`` is ``train`` or ``test``."""

TASKS: dict[str, Task] = {
    "countdown_small": countdown_small,
    "digit_sums": digit_sums,
    "sudoku_small": sudoku_small,
}
