"""Addition problems for a model trained from nothing: ``07+48=`` is answered by ``055``."""

from dare.data.splits import check_request, draw, split_of
from dare.types import Example

OPERANDS = range(100)


def addition_small(count: int, seed: int, split: str) -> list[Example]:
    """Return sums of two numbers below 100, digits padded with zeros; ``a+b`` and ``b+a`` lie in the same split."""
    check_request("addition_small", count, split)
    pool = [(a, b) for a in OPERANDS for b in OPERANDS if split_of(f"{min(a, b)}+{max(a, b)}") == split]
    return [_example(*pool[i], index) for index, i in enumerate(draw("addition_small", len(pool), count, seed, split))]


def _example(a: int, b: int, index: int) -> Example:
    answer = f"{a + b:03d}"
    columns = {"data_source": "addition_small", "ground_truth": answer, "index": index}
    return Example(({"role": "user", "content": f"{a:02d}+{b:02d}="},), columns, answer)
