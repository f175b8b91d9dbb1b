"""Cheap checks that keep an expression from filling memory or time before a computer algebra system reads it."""

import itertools
import re

MAX_DEPTH = 10
_EXPLOSIVE = re.compile(
    r"\^[{(]+[^{}()]*[\^!]"  # a power or factorial inside an exponent: 9^{9^9}
    r"|[0-9][)}]*\^[{(]*[+-]?\w+[)}]*\^"  # a chain of powers of a number: 9^9^9, (9^9)^9
    r"|\^[{(]*[+-]?[0-9]{5,}"  # 9^99999
    r"|[0-9]{5,}[)}]*!"  # 99999!
    r"|![)}]*!"  # (9!)!
)


def explosive(expression: str) -> bool:
    """Whether powers or factorials in the text may grow beyond what is quickly computed; ``**`` counts as ``^``.

    Brackets nested deeper than ``MAX_DEPTH``, on which LaTeX parsers take exponential time, count too. A filter for the
    common cases and no proof: what passes may still be slow.
    """
    steps = ((char in "([{") - (char in ")]}") for char in expression)
    if max(itertools.accumulate(steps), default=0) > MAX_DEPTH:
        return True
    return _EXPLOSIVE.search(re.sub(r"\s|\\(?:left|right)", "", expression).replace("**", "^")) is not None
