"""Compare a completion with plain text: equal to it, containing it, or matching a pattern."""

import re
from collections.abc import Iterable
from typing import Any

from dare.errors import DareError

Truth = str | int | float | Iterable[str | int | float]


def exact(
    completion: str, *, ground_truth: Truth, ignore_case: bool = False, ignore_space: bool = False, **_: Any
) -> float | None:
    """Return 1.0 if the completion equals the truth, or one of a list of accepted answers, else 0.0.

    White space around either does not count; ``ignore_space`` drops all of it and ``ignore_case`` compares without
    case. A blank completion is ``None``, unless a blank answer is accepted. Nothing else is forgiven: ``1,000`` is not
    ``1000`` and a final full stop counts.
    """
    text = _reduce(completion, ignore_case, ignore_space)
    accepted = [_reduce(truth, ignore_case, ignore_space) for truth in _accepted(ground_truth)]
    return 1.0 if text in accepted else 0.0 if text else None


def contains(
    completion: str, *, ground_truth: Truth, ignore_case: bool = False, ignore_space: bool = False, **_: Any
) -> float | None:
    """Return 1.0 if the truth, or any of a list of accepted answers, occurs in the completion, else 0.0.

    Options as in ``exact``; a blank completion is ``None``. Words are not told apart: ``12`` occurs in ``123``, for
    which ``matches`` has word boundaries. A blank truth occurs everywhere, so it raises ``DareError``.
    """
    text = _reduce(completion, ignore_case, ignore_space)
    accepted = [_reduce(truth, ignore_case, ignore_space) for truth in _accepted(ground_truth)]
    if "" in accepted:
        raise DareError(f"ground_truth is {ground_truth!r}; `contains` needs text that is not blank")
    return float(any(truth in text for truth in accepted)) if text else None


def matches(completion: str, *, pattern: str, **_: Any) -> float | None:
    r"""Return 1.0 if the regular expression ``pattern`` (Python's ``re``) matches anywhere, else 0.0.

    Anchor it with ``\A`` and ``\Z`` to match the whole completion; flags are written inside, ``(?i)``. A blank
    completion that does not match is ``None``. A pattern such as ``(a+)+b`` can take exponential time over a text of
    the model's choosing, and ``re`` cannot be interrupted: call this only in a process that may be killed.
    """
    try:
        found = re.search(pattern, completion)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise DareError(f"pattern is {pattern!r}, not a regular expression: {error}") from error
    return 1.0 if found else 0.0 if completion.strip() else None


def _accepted(ground_truth: Truth) -> list[str]:
    truths = [ground_truth] if isinstance(ground_truth, str | int | float) else list(ground_truth)
    if not truths:
        raise DareError("ground_truth is an empty list; give at least one accepted answer")
    return [str(truth) for truth in truths]


def _reduce(text: str, ignore_case: bool, ignore_space: bool) -> str:
    text = "".join(text.split()) if ignore_space else text.strip()
    return text.casefold() if ignore_case else text
