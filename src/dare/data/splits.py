"""Train and test problems that never meet, whatever the count and the seed."""

import random
import zlib
from collections.abc import Iterator

from dare.errors import DareError, nearest

SPLITS = ("train", "test")


def split_of(problem: str) -> str:
    """Return the split of a problem, decided by its canonical text alone: one in ten is ``test``."""
    return "test" if zlib.crc32(problem.encode()) % 10 == 0 else "train"


def check_request(task: str, count: int, split: str) -> None:
    """Raise ``DareError`` for an unknown split or a count below one."""
    if split not in SPLITS:
        raise DareError(f"{task} split is {split!r}, which does not exist; {nearest(split, SPLITS)}")
    if count < 1:
        raise DareError(f"{task} count is {count}; ask for at least one example")


def draw(task: str, total: int, count: int, seed: int, split: str) -> Iterator[int]:
    """Yield ``count`` of the numbers below ``total`` in random order; a longer draw extends a shorter.

    No number returns before all were drawn. ``test`` never repeats: asking it for more raises ``DareError``.
    """
    if split == "test" and count > total:
        raise DareError(
            f"{task} test count is {count}, but only {total} problems are held out; ask for at most {total}"
        )
    rng = random.Random(f"{task}:{seed}:{split}")
    for start in range(0, count, total):
        yield from _shuffled(total, min(total, count - start), rng)


def _shuffled(total: int, count: int, rng: random.Random) -> Iterator[int]:
    """Fisher-Yates on a virtual list: only the entries that moved are stored."""
    moved: dict[int, int] = {}
    for i in range(count):
        j = rng.randrange(i, total)
        yield moved.get(j, j)
        moved[j] = moved.get(i, i)
