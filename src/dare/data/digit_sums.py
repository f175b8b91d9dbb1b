"""Arithmetic with many right answers: ``13 07 11=`` asks for digit pairs with these sums, such as ``4+9 2+5 6+5``.

Demonstrations choose among the pairs at random. A model that fills both digits of a pair in the same step cannot know
which pair it is writing, so imitation alone decodes badly in few steps; a reward teaches it to settle on one.
"""

import random
from itertools import product

from dare.data.splits import check_request, draw, split_of
from dare.types import Example

SUMS = range(2, 19)


def digit_sums(count: int, seed: int, split: str) -> list[Example]:
    """Return triples of sums from 2 to 18, each written with two digits from 1 to 9; a triple lies in one split."""
    check_request("digit_sums", count, split)
    pool = [triple for triple in product(SUMS, repeat=3) if split_of(_prompt(triple)) == split]
    drawn = draw("digit_sums", len(pool), count, seed, split)
    return [_example(pool[which], index, seed, split) for index, which in enumerate(drawn)]


def _example(sums: tuple[int, ...], index: int, seed: int, split: str) -> Example:
    rng = random.Random(f"digit_sums:{seed}:{split}:{index}")
    firsts = [rng.randint(max(1, total - 9), min(9, total - 1)) for total in sums]
    answer = " ".join(f"{first}+{total - first}" for first, total in zip(firsts, sums, strict=True))
    columns = {"data_source": "digit_sums", "ground_truth": " ".join(map(str, sums)), "index": index}
    return Example(({"role": "user", "content": _prompt(sums)},), columns, answer)


def _prompt(sums: tuple[int, ...]) -> str:
    return " ".join(f"{total:02d}" for total in sums) + "="
