"""Small countdown problems for a model trained from nothing: ``3 7 2=23`` is answered by ``3*7+2``."""

import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

from dare.data.splits import check_request, draw, split_of
from dare.errors import DareError
from dare.types import Example

Numbers = tuple[int, ...]
TARGETS = range(100)


class Expression(NamedTuple):
    """An expression as text; ``is_sum`` when its outermost operator is ``+`` or ``-``."""

    value: int
    text: str
    is_sum: bool


def countdown_small(count: int, seed: int, split: str, *, numbers: int = 3) -> list[Example]:
    """Return problems with ``numbers`` (2 to 4) integers from 1 to 9 and a target from 0 to 99, each with a solution.

    Every number is used once, joined by ``+ - *``. The numbers come in random order and the answer is drawn uniformly
    from all solutions. ``split`` is ``train`` or ``test``; a multiset of numbers with a target lies in one of them.
    """
    check_request("countdown_small", count, split)
    if numbers not in (2, 3, 4):
        raise DareError(f"countdown_small numbers is {numbers}; choose 2, 3 or 4")
    pool = [problem for problem in _problems(numbers) if split_of(_canonical(*problem)) == split]
    drawn = draw("countdown_small", len(pool), count, seed, split)
    return [_example(*pool[which], index, seed, split) for index, which in enumerate(drawn)]


def _example(numbers: Numbers, target: int, index: int, seed: int, split: str) -> Example:
    rng = random.Random(f"countdown_small:{seed}:{split}:{index}")
    order = rng.sample(numbers, len(numbers))
    prompt = f"{' '.join(map(str, order))}={target}"
    columns = {"data_source": "countdown_small", "ground_truth": str(target), "numbers": json.dumps(order)}
    answer = rng.choice(solutions(numbers, target))
    return Example(({"role": "user", "content": prompt},), columns | {"index": index}, answer)


def _canonical(numbers: Numbers, target: int) -> str:
    return f"{','.join(map(str, numbers))}={target}"


@cache
def _problems(size: int) -> list[tuple[Numbers, int]]:
    multisets = combinations_with_replacement(range(1, 10), size)
    return [(numbers, target) for numbers in multisets for target in TARGETS if target in _values(numbers)]


def solutions(numbers: Numbers, target: int) -> list[str]:
    """Return every expression over the sorted ``numbers`` that equals ``target``, without needless parentheses."""
    return sorted(e.text for e in _expressions(numbers) if e.value == target)


def _partitions(numbers: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield each ordered way to share the numbers between a left and a right operand."""
    positions = range(len(numbers))
    for size in range(1, len(numbers)):
        for chosen in combinations(positions, size):
            rest = tuple(numbers[i] for i in positions if i not in chosen)
            yield tuple(numbers[i] for i in chosen), rest


@cache
def _values(numbers: Numbers) -> frozenset[int]:
    if len(numbers) == 1:
        return frozenset(numbers)
    pairs = ((a, b) for left, right in _partitions(numbers) for a in _values(left) for b in _values(right))
    return frozenset(value for a, b in pairs for value in (a + b, a - b, a * b))


@cache
def _expressions(numbers: Numbers) -> frozenset[Expression]:
    if len(numbers) == 1:
        return frozenset({Expression(numbers[0], str(numbers[0]), False)})
    parts = set(_partitions(numbers))
    pairs = ((a, b) for left, right in parts for a in _expressions(left) for b in _expressions(right))
    return frozenset(joined for a, b in pairs for joined in _joined(a, b))


def _joined(a: Expression, b: Expression) -> Iterator[Expression]:
    yield Expression(a.value + b.value, f"{a.text}+{b.text}", True)
    yield Expression(a.value - b.value, f"{a.text}-{_factor(b)}", True)
    yield Expression(a.value * b.value, f"{_factor(a)}*{_factor(b)}", False)


def _factor(e: Expression) -> str:
    return f"({e.text})" if e.is_sum else e.text
