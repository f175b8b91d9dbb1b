"""GSM8K (Cobbe et al., 2021): the final answer is one number."""

import re
from fractions import Fraction
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import after_hashes, last_boxed
from dare.rewards.latex import MAX_LENGTH, normalise, number, rewrite, rewrites

_NUMBER = re.compile(
    r"(?:(?<![\w.)\]}])-)?"  # a minus behind a word or a number is a hyphen or a difference
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
_REWRITES = rewrites(
    (r"\u2212", "-"),
    (r"\{,\}", ","),
    (r"\\[!,]", ""),
    (r"-\\?\$", " -"),
    (r"\\?\$", " "),
    (r"(?<=[A-Za-z}])\^(?:[0-9]|\{[0-9]\})", ""),  # the exponent of a unit
)


def gsm8k(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    r"""Grade the number after the last ``####``, else in the last ``\boxed{…}``, by value: 1.0 or 0.0.

    Signs of currency and percent, words, units and thousands commas around the number are ignored; two numbers are
    wrong. ``None``: neither mark, or no number there. The truth is a number or a worked answer with either mark.
    """
    answer = after_hashes(completion) or last_boxed(completion)
    if not answer:
        return None
    found = _numbers(answer)
    value = _value(answer)
    return None if value is None and not found else float(value == _truth(ground_truth))


def gsm8k_flexible(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    """Grade the last number anywhere in the text by value: 1.0 or 0.0; ``None`` without a number.

    As the ``flexible-extract`` filter of lm-evaluation-harness, which compares text: there 18.00 is not 18.
    """
    found = _numbers(completion)
    return float(_fraction(found[-1]) == _truth(ground_truth)) if found else None


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(rewrite(text, _REWRITES))


def _value(text: str) -> Fraction | None:
    """Return the number that the text writes in LaTeX, else the only number in it, else ``None``."""
    if len(text) > MAX_LENGTH:
        return None
    value, found = number(normalise(text)), _numbers(text)
    return value if value is not None else _fraction(found[0]) if len(found) == 1 else None


def _fraction(text: str) -> Fraction | None:
    return Fraction(text.replace(",", "")) if len(text) <= MAX_LENGTH else None


def _truth(ground_truth: str) -> Fraction:
    value = _value(after_hashes(ground_truth) or last_boxed(ground_truth) or ground_truth)
    if value is None:
        raise DareError(
            f"ground_truth is {ground_truth[:80]!r}; write one number, or a worked answer that ends in ####"
        )
    return value
