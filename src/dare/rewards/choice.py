"""Multiple choice: the last letter that is stated as the answer."""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import last_boxed, last_tag

LONGEST = 400
"""Characters of a statement."""

_STATED = re.compile(r"\b(?:answer|choice|option)\b[*_\s]{0,9}(?:is|are|:)[:*_\s]{0,9}", re.IGNORECASE)
_DRESS = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}|[*_$`\"“”]")
_LABEL = r"[\[({{]?(?P<{0}>[A-Za-z]|[0-9]{{1,2}})[\])}}]?(?![A-Za-z0-9])"
_ALONE = re.compile(_LABEL.format("one") + r"\s*[.:]?")
_SEVERAL = re.compile(_LABEL.format("one") + r"\s*(?:,|/|&|\bor\b|\band\b)\s*(?!I\s)" + _LABEL.format("other"))
_LEADING = re.compile(
    r"(?:[(\[](?P<in>[A-Za-z]|[0-9]{1,2})[)\]]|(?P<out>[A-Z]|[0-9]{1,2})(?:[).:,]|\s+(?:because|since|as)\b))"
)


def multiple_choice(
    completion: str, *, ground_truth: str | int, choices: Sequence[str] | Mapping[str, Any] | None = None, **_: Any
) -> float | None:
    r"""Return 1.0 if the last answer that is stated is the right letter, else 0.0; ``None`` where none is stated.

    Stated is what stands in ``\boxed{…}`` or ``<answer>…</answer>``, behind "the answer is" or "Answer:" (also choice
    and option) or alone: ``B``, ``(B)``, ``B.``, ``B) its text``, or with ``choices`` the text of one of them. Letters
    that prose mentions do not count, and two letters, as in "A or B", are wrong.

    ``choices`` are texts, lettered from A on, or ``{"label": [...], "text": [...]}``. The truth is a label, the number
    of a choice from 0, or its text.
    """
    labels, texts = _options(choices)
    truth = _truth(ground_truth, labels, texts)
    for statement in _statements(completion):
        found = _read(statement, texts, labels)
        if found is not None:
            return float(found == truth)
    return None


def _statements(text: str) -> list[str]:
    """What is stated, the last of each kind, from the last place to the first; else all of a short text."""
    box, tag = last_boxed(text), last_tag(text, "answer")
    places = [
        (max(text.rfind("\\boxed"), text.rfind("\\fbox")), box),
        (text.rfind("<answer>", 0, max(text.rfind("</answer>"), 0)), tag),
        *[(found.start(), _line(text, found.end())) for found in [*_STATED.finditer(text)][-1:]],
    ]
    found = [stated for _, stated in sorted(places, key=lambda one: -one[0]) if stated]
    return found or ([text] if len(text.strip()) <= LONGEST else [])


def _line(text: str, start: int) -> str:
    return re.split(r"[\n<]", text[start : start + LONGEST], maxsplit=1)[0]


def _read(statement: str, texts: Mapping[str, str], labels: Sequence[str]) -> str | None:
    """The label that a statement names, "" for several, ``None`` for none."""
    plain = _DRESS.sub(lambda found: found[1] or "", statement).strip()
    if _same(plain) in texts:
        return texts[_same(plain)]
    if several := _SEVERAL.match(plain):
        one, other = several["one"].upper(), several["other"].upper()
        return one if one == other else ""
    if alone := _ALONE.fullmatch(plain):
        return _known(alone["one"], labels)
    if leading := _LEADING.match(plain):
        return _known(leading["in"] or leading["out"], labels)
    return None


def _known(label: str, labels: Sequence[str]) -> str | None:
    """A letter in capitals; a number is a label only where the choices are numbered."""
    return label.upper() if label.isalpha() or label in labels else None


def _options(choices: Sequence[str] | Mapping[str, Any] | None) -> tuple[list[str], dict[str, str]]:
    """The labels, and the label of each text that only one choice has."""
    if choices is None:
        return [*ascii_uppercase], {}
    texts = choices.get("text") if isinstance(choices, Mapping) else choices
    labels = choices.get("label") if isinstance(choices, Mapping) else [*ascii_uppercase[: len(choices)]]
    if not texts or isinstance(texts, str) or not labels or len(labels) != len(texts):
        raise DareError(f"choices is {str(choices)[:80]}; write up to 26 texts, or as many under label as under text")
    folded = [_same(str(text)) for text in texts]
    pairs = zip(folded, map(str, labels), strict=True)
    return [str(label).upper() for label in labels], {
        text: label.upper() for text, label in pairs if folded.count(text) == 1
    }


def _truth(truth: str | int, labels: Sequence[str], texts: Mapping[str, str]) -> str:
    if isinstance(truth, int) and not isinstance(truth, bool) and 0 <= truth < len(labels):
        return labels[truth]
    if isinstance(truth, str):
        if truth.strip().upper() in labels:
            return truth.strip().upper()
        if _same(truth) in texts:
            return texts[_same(truth)]
    raise DareError(f"ground_truth is {truth!r}; write one of {', '.join(labels)}, a number from 0, or a choice's text")


def _same(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").casefold()
