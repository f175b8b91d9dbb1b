"""IFEval: responses that follow verifiable instructions (Zhou et al., arXiv 2311.07911), checked offline."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dare.errors import DareError, nearest
from dare.rewards import ifeval_rules as rules

INSTRUCTIONS: dict[str, Callable[..., bool]] = {
    "keywords:existence": rules.existence,
    "keywords:frequency": rules.frequency,
    "keywords:forbidden_words": rules.forbidden_words,
    "keywords:letter_frequency": rules.letter_frequency,
    "language:response_language": rules.response_language,
    "length_constraints:number_sentences": rules.number_sentences,
    "length_constraints:number_paragraphs": rules.number_paragraphs,
    "length_constraints:number_words": rules.number_words,
    "length_constraints:nth_paragraph_first_word": rules.nth_paragraph_first_word,
    "detectable_content:number_placeholders": rules.number_placeholders,
    "detectable_content:postscript": rules.postscript,
    "detectable_format:number_bullet_lists": rules.number_bullet_lists,
    "detectable_format:constrained_response": rules.constrained_response,
    "detectable_format:number_highlighted_sections": rules.number_highlighted_sections,
    "detectable_format:multiple_sections": rules.multiple_sections,
    "detectable_format:json_format": rules.json_format,
    "detectable_format:title": rules.title,
    "combination:two_responses": rules.two_responses,
    "combination:repeat_prompt": rules.repeat_prompt,
    "startend:end_checker": rules.end_checker,
    "startend:quotation": rules.quotation,
    "change_case:capital_word_frequency": rules.capital_word_frequency,
    "change_case:english_capital": rules.english_capital,
    "change_case:english_lowercase": rules.english_lowercase,
    "punctuation:no_comma": rules.no_comma,
}
"""The published id -> its check."""

MAX_LENGTH = 100_000
"""Characters; a longer response follows nothing: no instruction asks for one."""

Kwargs = Sequence[Mapping[str, Any] | None]


def ifeval(completion: str, *, instruction_id_list: Sequence[str], kwargs: Kwargs, **_: Any) -> float:
    """Return 1.0 if all instructions are followed (prompt-level strict accuracy), else 0.0; an empty text follows none.

    ``kwargs`` are the arguments of each instruction; those that are ``None`` are left out. An unknown id or argument
    raises ``DareError``.
    """
    return float(all(_followed([completion], instruction_id_list, kwargs)))


def ifeval_share(completion: str, *, instruction_id_list: Sequence[str], kwargs: Kwargs, **_: Any) -> float:
    """Return the share of the instructions that are followed (instruction-level strict accuracy, of one prompt)."""
    found = _followed([completion], instruction_id_list, kwargs)
    return sum(found) / len(found)


def ifeval_loose(completion: str, *, instruction_id_list: Sequence[str], kwargs: Kwargs, **_: Any) -> float:
    """Return 1.0 if each instruction is followed by one of eight variants (prompt-level loose accuracy), else 0.0.

    The variants lack the first line, the last, or both, and all asterisks, or none of these.
    """
    return float(all(_followed([*variants(completion)], instruction_id_list, kwargs)))


def variants(text: str) -> Iterator[str]:
    """Yield the response and its seven variants."""
    lines = text.split("\n")
    for part in (text, *("\n".join(kept).strip() for kept in (lines[1:], lines[:-1], lines[1:-1]))):
        yield part
        yield part.replace("*", "")


def _followed(texts: Sequence[str], names: Sequence[str], kwargs: Kwargs) -> list[bool]:
    if not names or len(names) != len(kwargs):
        raise DareError(
            f"instruction_id_list has {len(names)} ids and kwargs {len(kwargs)} entries; one each is expected"
        )
    checks = [_check(name, given) for name, given in zip(names, kwargs, strict=True)]
    texts = [text for text in texts if text.strip() and len(text) <= MAX_LENGTH]
    return [any(check(text) for text in texts) for check in checks]


def _check(name: str, given: Mapping[str, Any] | None) -> Callable[[str], bool]:
    if name not in INSTRUCTIONS:
        raise DareError(f"instruction {name!r} does not exist; {nearest(name, INSTRUCTIONS)}")
    arguments = {key: value for key, value in (given or {}).items() if value is not None}
    check = INSTRUCTIONS[name]
    try:
        inspect.signature(check).bind("", **arguments)
    except TypeError as error:
        wanted = ", ".join([*inspect.signature(check).parameters][1:]) or "no arguments"
        raise DareError(f"kwargs of instruction {name!r}: {error}; it takes {wanted}") from error
    return lambda text: check(text, **arguments)
