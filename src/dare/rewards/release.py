r"""The rules of the DARE paper's release for mathematics and countdown, kept to compare with its published numbers.

The release's sudoku rule is ``dare.rewards.sudoku:sudoku``. Its mathematics rule takes the last box and accepts it by
the text rules of MATH (Hendrycks et al., 2021) or by those of PRM800K (Lightman et al., 2023) with sympy. Nothing is
executed here: ``algebra`` reads what sympy's own parser would evaluate, and fractions keep their grouping.
"""

import re
from typing import Any

from dare.rewards import algebra
from dare.rewards.arithmetic import FORMAT_CREDIT, given, python_value, target
from dare.rewards.extract import last_boxed, last_tag
from dare.rewards.latex import MAX_LENGTH, Rewrites, rewrite, rewrites

TOLERANCE = 1e-5
MAX_LETTERS = 2

_UNITS = "degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard"
_HENDRYCKS: Rewrites = rewrites(
    (r"\n|\\!|\\left|\\right|\^\{\\circ\}|\^\\circ|\\\$", ""),
    (r"\\text\{ .*|\\?%", ""),
    (r"\\\\", r"\\"),
    (r"\\[td]frac", r"\\frac"),
    (r"(^|[ {])\.", r"\g<1>0."),
    (r"^[^=]{0,2}=([^=]*)$", r"\1"),
    (r"\\sqrt([^{ ])", r"\\sqrt{\1}"),
    (r" ", ""),
    (r"\\frac([^{])([^{])", r"\\frac{\1}{\2}"),
    (r"\\frac([^{])\{", r"\\frac{\1}{"),
    (r"(\\frac\{[^{}]*\})([^{])", r"\1{\2}"),
    (r"^0\.5$", r"\\frac{1}{2}"),
    (r"^(-?[0-9]+)/(-?[0-9]+)$", r"\\frac{\1}{\2}"),
)
_PRM800K: Rewrites = rewrites(
    (r"^\\text\{([^{}]+)\}$", r"\1"),
    (r"\\?[%$]", ""),
    (r" (?:or|and) ", " , "),
    ("million", "*10^6"),
    ("billion", "*10^9"),
    ("trillion", "*10^12"),
    (rf"(?:{_UNITS})(?:es)?s? *(?:\^[0-9]+)?", ""),
    (r"\^ *\\circ|\^\{\\circ\}|,\\! *|\\!", ""),
    (r"^\{(.*)\}$", r"\1"),
    (r"\\(?:left|right)|\\[,;: ]", ""),
    (r"\\[td]frac", r"\\frac"),
    (r"\\(frac|sqrt) *([0-9a-zA-Z])", r"\\\1{\2}"),
    (r"(\\frac\{[^{}]*\}) *([0-9a-zA-Z])", r"\1{\2}"),
    (r"\\(?:cdot|times)(?![a-zA-Z])", "*"),
    (r"\\infty", "inf"),
    (r"\\cup", "U"),
)
_NESTED: Rewrites = rewrites(
    (r"\^\{([^{}])\}", r"^\1"),
    (r"\^\{([^{}]*)\}", r"^(\1)"),
    (r"\\sqrt *\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\text *\{([^{}]*)\}", r"\1"),
    (r"(?<=[0-9]) *\\frac *\{([0-9]+)\} *\{([0-9]+)\}", r"+\1/\2"),
    (r"\\frac *\{(\w*)\} *\{(\w*)\}", r"\1/\2"),
    (r"\\frac *\{([^{}]*)\} *\{([^{}]*)\}", r"(\1)/(\2)"),
)
_PLAIN: Rewrites = rewrites(
    (r"- *", "-"), (r"([0-9]) +([0-9])", r"\1+\2"), (r"[ {}\\]", ""), (r"(?<=[0-9]),(?=[0-9]{3}(?:[^0-9]|$))", "")
)
_INTEGER = re.compile(r"(-?[0-9]+)(?:\.0*)?")
_FRACTION = re.compile(r"-?[0-9]+/[0-9]+")
_SUSPICIOUS = re.compile(r"\^[{(]|\^[0-9]+\^|\^[0-9][0-9]+")


def release_math(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    r"""Grade the last ``\boxed{…}`` or ``\fbox{…}`` by the release's rule: 1.0 or 0.0; ``None`` without one.

    Equal are: texts after ``hendrycks``; texts after PRM800K's rewriting; tuples whose elements sympy finds equal. An
    integer there demands an integer, two fractions must be spelt alike, and more than two different letters, a long
    exponent or a bracketed one are not handed to sympy. Answers over 500 characters must be the truth's very text.
    """
    answer = last_boxed(completion)
    return float(_correct(answer, ground_truth)) if answer else None


def hendrycks(answer: str) -> str:
    """Rewrite an answer by the text rules of MATH's ``math_equivalence``.

    As there, one with two units is left as it is; so is one over 500 characters.
    """
    plain = len(answer) > MAX_LENGTH or answer.count(r"\text{ ") > 1
    return answer if plain else rewrite(answer, _HENDRYCKS)


def release_countdown(completion: str, *, ground_truth: str | int, numbers: Any, **_: Any) -> float | None:
    """Grade the last ``<answer>`` tag by the release's rule: 1.0 for the given numbers and the target, else 0.1.

    The numbers are the runs of digits in the text, the value is Python's to within 1e-5, so unary minus, decimals,
    ``//`` and ``**`` count. The release executes the text; here it is parsed, and text over 1,000 characters or a power
    over 4,096 bits gets 0.1. Without a tag: ``None``.
    """
    answer = last_tag(completion, "answer")
    if answer is None:
        return None
    try:
        value = python_value(answer)
    except ValueError:
        return FORMAT_CREDIT
    same = sorted(map(int, re.findall(r"[0-9]+", answer))) == given(numbers)
    return 1.0 if same and abs(value - target(ground_truth)) < TOLERANCE else FORMAT_CREDIT


def _correct(answer: str, truth: str) -> bool:
    if max(len(answer), len(truth)) > MAX_LENGTH:
        return answer == truth
    if hendrycks(answer) == hendrycks(truth):
        return True
    answer, truth = _prm800k(answer), _prm800k(truth)
    if answer == truth or answer == "":
        return answer == truth
    elements, truths = _elements(answer), _elements(truth)
    if len(elements) != len(truths) or (len(truths) > 1 and (answer[0], answer[-1]) != (truth[0], truth[-1])):
        return False
    return all(map(_same, elements, truths))


def _prm800k(answer: str) -> str:
    text, before = rewrite(answer.strip(), _PRM800K), ""
    while text != before:
        text, before = rewrite(text, _NESTED), text
    text = rewrite(text, _PLAIN).lower()
    integer = _INTEGER.fullmatch(text)
    return str(int(integer[1])) if integer else text


def _elements(text: str) -> list[str]:
    bracketed = re.fullmatch(r"[(\[]([^()\[\]]*)[)\]]", text)
    return bracketed[1].split(",") if bracketed else [text]


def _same(answer: str, truth: str) -> bool:
    if _FRACTION.fullmatch(answer) and _FRACTION.fullmatch(truth):
        return answer == truth
    if _INTEGER.fullmatch(truth) and not _INTEGER.fullmatch(answer):
        return False
    letters = set(re.findall(r"[a-z]", (answer + truth).replace("sqrt", "").replace("frac", "")))
    if len(letters) > MAX_LETTERS or _SUSPICIOUS.search(answer) or _SUSPICIOUS.search(truth):
        return False
    return algebra.equal(answer, truth)
