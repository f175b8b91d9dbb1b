"""The checks behind IFEval's instructions (Zhou et al., arXiv 2311.07911): does a response follow one?

Every check takes the response and the instruction's arguments by their published names. The rules are those of the
published checker, with two differences. It parts sentences and words in capitals by a trained tokenizer, which has to
be downloaded; here sentences end at ``.``, ``!`` or ``?`` before white space, but for common abbreviations, and words
are runs of letters, digits, apostrophes and hyphens. And keywords are literal texts here, regular expressions there.
"""

import json
import re
from collections.abc import Sequence

from dare.errors import DareError
from dare.rewards.optional import optional

_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?=\s|$)")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|fig|jr|sr|[a-z])$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_NAME_END = re.compile(r"[.,?!'\"]")


def compare(count: int, number: int, relation: str) -> bool:
    """Tell whether a count is "less than" a number, or "at least" it."""
    if relation not in ("less than", "at least"):
        raise DareError(f"relation is {relation!r}; write 'less than' or 'at least'")
    return count < number if relation == "less than" else count >= number


def existence(text: str, *, keywords: Sequence[str]) -> bool:
    """All keywords occur, in any case."""
    return all(word.lower() in text.lower() for word in keywords)


def frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so many times, in any case."""
    return compare(text.lower().count(keyword.strip().lower()), frequency, relation)


def forbidden_words(text: str, *, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a word."""
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A letter occurs so many times, in any case."""
    return compare(text.lower().count(letter.strip().lower()), let_frequency, let_relation)


def response_language(text: str, *, language: str) -> bool:
    """The response is in a language, by its two-letter code; text whose language cannot be told is in any."""
    found = _language(text)
    return found is None or found == language


def number_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    """So many sentences."""
    return compare(sentences(text), num_sentences, relation)


def number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """So many paragraphs parted by ``***``; none of those inside is blank."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


def number_words(text: str, *, num_words: int, relation: str) -> bool:
    r"""So many words, runs of ``\w``."""
    return compare(sum(1 for _ in re.finditer(r"\w+", text)), num_words, relation)


def nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """So many paragraphs parted by two line breaks, and the n-th of them, blank ones included, begins with a word."""
    parts = text.split("\n\n")
    count = sum(1 for part in parts if part.strip())
    if count != num_paragraphs or not 1 <= nth_paragraph <= count or not parts[nth_paragraph - 1].strip():
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return _NAME_END.split(word)[0].lower() == first_word.lower()


def number_placeholders(text: str, *, num_placeholders: int) -> bool:
    """At least so many placeholders, such as [name]."""
    return len(re.findall(r"\[[^\[\]\n]*\]", text)) >= num_placeholders


def postscript(text: str, *, postscript_marker: str) -> bool:
    """A postscript that begins with P.S. or P.P.S, also with spaces, or with another marker."""
    forms = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    marker = postscript_marker.strip()
    return re.search(forms.get(marker, re.escape(marker.lower())), text.lower()) is not None


def number_bullet_lists(text: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that begin with ``*`` (not ``**``) or ``-``."""
    return sum(1 for line in text.split("\n") if re.match(r"\s*(?:\*[^*]|-)", line)) == num_bullets


def constrained_response(text: str) -> bool:
    """One of three sentences occurs."""
    return any(answer in text for answer in _ANSWERS)


def number_highlighted_sections(text: str, *, num_highlights: int) -> bool:
    """At least so many parts marked by ``*`` or ``**`` that are not blank."""
    single = [found for found in re.findall(r"\*[^\n*]*\*", text) if found.strip("*").strip()]
    double = [found for found in re.findall(r"\*\*[^\n*]*\*\*", text) if found.strip("*").strip()]
    return len(single) + len(double) >= num_highlights


def multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections, each after the splitter and a number, such as SECTION 1."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


def json_format(text: str) -> bool:
    """The whole is JSON, in a fence or not."""
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """A title in double angular brackets, such as <<poem of joy>>."""
    parts = [line[: line.rfind(">>")].partition("<<")[2] for line in text.split("\n") if ">>" in line]
    return any(part.strip("<> \t") for part in parts)


def two_responses(text: str) -> bool:
    """Two different responses parted by six asterisks."""
    parts = [part.strip() for part in text.split("******")]
    found = [part for part in parts if part]
    return all(parts[1:-1]) and len(found) == 2 and found[0] != found[1]


def repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    """It begins with the request, in any case."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(text: str, *, end_phrase: str) -> bool:
    """It ends with a phrase, in any case; quotation marks around the whole do not count."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    """All of it stands in double quotation marks."""
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def capital_word_frequency(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    """So many words in capitals."""
    return compare(sum(word[0].isupper() for word in _WORD.finditer(text)), capital_frequency, capital_relation)


def english_capital(text: str) -> bool:
    """English, in capitals."""
    return text.isupper() and response_language(text, language="en")


def english_lowercase(text: str) -> bool:
    """English, in small letters."""
    return text.islower() and response_language(text, language="en")


def no_comma(text: str) -> bool:
    """No comma."""
    return "," not in text


def sentences(text: str) -> int:
    """Count sentences; see above for where they end."""
    text, start, count = text.strip(), 0, 0
    for end in _SENTENCE_END.finditer(text):
        if end[0] == "." and _ABBREVIATION.search(text[max(start, end.start() - 12) : end.start()]):
            continue
        count, start = count + 1, end.end()
    return count + bool(text[start:].strip())


def _language(text: str) -> str | None:
    library = optional("langdetect")
    library.DetectorFactory.seed = 0
    try:
        return library.detect(text)
    except library.LangDetectException:
        return None
