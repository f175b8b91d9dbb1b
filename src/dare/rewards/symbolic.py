r"""Grade answers in mathematics by algebra, with Math-Verify (Hugging Face) behind the rules of ``latex``."""

import functools
import logging
from typing import Any

from dare.rewards.extract import last_boxed
from dare.rewards.guards import explosive
from dare.rewards.latex import MAX_LENGTH, equivalent
from dare.rewards.optional import optional


def math(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    r"""Grade the last ``\boxed{…}`` or ``\fbox{…}``: 1.0 if ``equivalent`` or equal for Math-Verify, else 0.0.

    Math-Verify compares expressions, equations, sets, intervals, tuples and matrices, and decimals to six places.
    ``None`` without a box. ``equivalent`` alone compares answers over 500 characters, powers of powers and deep
    brackets. Algebra has no time limit here, so this reward must run in a process that can be ended.
    """
    answer = last_boxed(completion)
    if not answer:
        return None
    return float(equivalent(answer, ground_truth) or _equal_by_algebra(answer, ground_truth))


def _equal_by_algebra(answer: str, truth: str) -> bool:
    if any(len(text) > MAX_LENGTH or explosive(text) for text in (answer, truth)):
        return False
    return bool(_math_verify().verify(_parse(truth), _parse(answer), timeout_seconds=None))


def _parse(answer: str) -> list[Any]:
    library = _math_verify()
    # One formula, read as LaTeX only: the library's plain-text reader evaluates what it finds as Python.
    formula = f"${answer.replace('$', '')}$"
    return library.parse(formula, [library.LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)


@functools.cache
def _math_verify() -> Any:
    # Its time limits use signals, which exist in the main thread only: they are off, and the warning says no more.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return optional("math_verify")
