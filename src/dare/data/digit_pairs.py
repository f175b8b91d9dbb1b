"""Pairs over ``digit_sums``: a right answer, and the same one with a digit that makes one of its sums wrong."""

import random
from dataclasses import replace

from dare.data.digit_sums import digit_sums
from dare.types import Example


def digit_sums_pairs(count: int, seed: int, split: str) -> list[tuple[Example, Example]]:
    """Return (chosen, rejected) for the first ``count`` problems of ``digit_sums``."""
    examples = digit_sums(count, seed, split)
    return [(example, _spoilt(example, f"{seed}:{split}:{index}")) for index, example in enumerate(examples)]


def _spoilt(example: Example, name: str) -> Example:
    assert example.answer is not None
    rng = random.Random(f"digit_sums_pairs:{name}")
    place = rng.choice([place for place, character in enumerate(example.answer) if character.isdigit()])
    digit = rng.choice([digit for digit in "123456789" if digit != example.answer[place]])
    return replace(example, answer=example.answer[:place] + digit + example.answer[place + 1 :])
