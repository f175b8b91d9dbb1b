r"""When are two LaTeX answers the same? Text rewriting and exact fractions; no answer is ever executed.

The rewriting rules follow the normalisation of the MATH benchmark (Hendrycks et al., 2021, ``math_equivalence.py``);
comparing numbers and tuples by value follows PRM800K (Lightman et al., 2023).
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

MAX_LENGTH = 500

Rewrites = Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
"""Patterns and what replaces them, in the order in which they are applied."""


def rewrites(*rules: tuple[str, str | Callable[[re.Match[str]], str]]) -> Rewrites:
    """Compile the rules; classes such as ``\\w`` match ASCII only."""
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]


def rewrite(text: str, rules: Rewrites) -> str:
    """Apply the rules one after the other."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


_THOUSANDS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])")


def _without_commas(text: re.Match[str]) -> str:
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text[0])


_REWRITES = rewrites(
    (r"\\!|\\displaystyle|\\(?:left|right)(?![a-zA-Z])|\\?\$|\\?%", ""),
    (r"\{,\}", ","),
    (r"\u2212", "-"),
    (r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})|°", ""),
    (r"(?<=[0-9])\s*(?:\\ )?\s*\\(?:text|mbox|mathrm)\{[^{}]*\}(?:\^\{?[0-9]\}?)?\s*\.?\s*$", ""),  # units
    (r"(?<=\S)\s*\\(?:text|mbox|mathrm)\{\s[^{}]*\}(?:\^\{?[0-9]\}?)?\s*\.?\s*$", ""),
    (r"(?<=[0-9])\s*(?:degrees?|dollars?|percent|(?:square |cubic )?units?)\s*\.?\s*$", ""),
    (r"\\(?:text|mbox|textbf|textnormal|mathrm|mathbf)\{([^{}]*)\}", r"\1"),
    (r"^\s*(?:[a-zA-Z]{1,2}|[a-zA-Z]\([a-z]\))\s*=|^\s*[a-zA-Z]\s*\\in(?![a-zA-Z])", ""),
    (r"^(?!\s*[(\[{\\]).*$", _without_commas),
    (r"(?<![\w.])([0-9]+)\s*/\s*([0-9]+)(?![\w.{])", r"\\frac{\1}{\2}"),
    (r"(?<!\\)\\[,;: ]|\s|~|\\q?quad(?![a-zA-Z])", ""),
    (r"\\([lg])eq(?![a-zA-Z])", r"\\\1e"),
    (r"\\[dt]frac", r"\\frac"),
    (r"\\(frac|sqrt)([0-9a-zA-Z])", r"\\\1{\2}"),
    (r"(\\frac\{[^{}]*\})([0-9a-zA-Z])", r"\1{\2}"),
    (r"([_^])\{(\w)\}", r"\1\2"),
    (r"(?<![0-9])\.(?=[0-9])", "0."),
    (r"\.$", ""),
    (r"^\(([A-Z])\)$", r"\1"),
)
_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_FRACTION = re.compile(r"([+-]?)([0-9]*)\\frac\{([+-]?[0-9]+)\}\{([+-]?[0-9]+)\}")
_BRACKETS = re.compile(r"(\(|\[|\\\{)(.*)(\)|\]|\\\})")


def normalise(answer: str) -> str:
    """Rewrite a LaTeX answer into one spelling: no spacing, units, ``x=`` or thousands commas; one form of fraction."""
    return rewrite(answer, _REWRITES)


def equivalent(answer: str, truth: str) -> bool:
    """Whether two answers are equal once normalised: as text, as exact numbers, or element by element.

    Tuples and intervals need the same brackets. Answers over ``MAX_LENGTH`` characters are unequal to everything else.
    """
    if answer == truth:
        return True
    return max(len(answer), len(truth)) <= MAX_LENGTH and _same(normalise(answer), normalise(truth))


def _same(answer: str, truth: str) -> bool:
    if answer == truth:
        return answer != ""
    value = number(answer)
    if value is not None and value == number(truth):
        return True
    (*brackets, elements), (*truth_brackets, truth_elements) = _elements(answer), _elements(truth)
    if brackets != truth_brackets or len(elements) != len(truth_elements) or elements == [answer]:
        return False
    return all(_same(a, t) for a, t in zip(elements, truth_elements, strict=True))


def number(text: str) -> Fraction | None:
    r"""Return the exact value of a normalised integer, decimal, ``\frac{a}{b}`` or mixed number, else ``None``."""
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    match = _FRACTION.fullmatch(text)
    if match is None or int(match[4]) == 0:
        return None
    magnitude = int(match[2] or 0) + Fraction(int(match[3]), int(match[4]))
    return -magnitude if match[1] == "-" else magnitude


def _elements(text: str) -> tuple[str, str, list[str]]:
    """Split at the commas that no bracket encloses, after taking off the outer brackets."""
    match = _BRACKETS.fullmatch(text)
    opening, inside, closing = match.groups() if match else ("", text, "")
    depth, parts = 0, [""]
    for char in inside:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return opening, closing, parts
