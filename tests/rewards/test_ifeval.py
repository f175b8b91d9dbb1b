"""IFEval: bad rows, every published instruction, and texts made to be slow."""

import inspect
import time

import pytest

from dare.errors import DareError
from dare.rewards.ifeval import INSTRUCTIONS, MAX_LENGTH, ifeval, ifeval_loose, ifeval_share, variants
from dare.rewards.ifeval_rules import sentences

ARGUMENTS = {
    "keywords": ["cat"],
    "keyword": "cat",
    "frequency": 1,
    "relation": "at least",
    "forbidden_words": ["cat"],
    "letter": "a",
    "let_frequency": 1,
    "let_relation": "at least",
    "language": "en",
    "num_sentences": 1,
    "num_paragraphs": 1,
    "num_words": 1,
    "nth_paragraph": 1,
    "first_word": "a",
    "num_placeholders": 1,
    "postscript_marker": "P.S.",
    "num_bullets": 1,
    "num_highlights": 1,
    "section_spliter": "SECTION",
    "num_sections": 1,
    "prompt_to_repeat": "a",
    "end_phrase": "a",
    "capital_frequency": 1,
    "capital_relation": "at least",
}


def arguments(name: str) -> dict:
    return {one: ARGUMENTS[one] for one in [*inspect.signature(INSTRUCTIONS[name]).parameters][1:]}


def test_there_are_the_25_published_instructions():
    assert len(INSTRUCTIONS) == 25


@pytest.mark.parametrize("reward", [ifeval, ifeval_share, ifeval_loose])
@pytest.mark.parametrize(
    ("names", "kwargs", "match"),
    [
        (["punctuation:no_commas"], [{}], "did you mean 'punctuation:no_comma'"),
        (["keywords:existence"], [{}], "missing a required argument: 'keywords'; it takes keywords"),
        (["punctuation:no_comma"], [{"num_words": 3}], "it takes no arguments"),
        (["punctuation:no_comma"], [], "has 1 ids and kwargs 0 entries"),
        ([], [], "has 0 ids"),
        (["length_constraints:number_words"], [{"num_words": 3, "relation": "at most"}], "relation is 'at most'"),
    ],
)
def test_bad_rows(reward, names, kwargs, match):
    with pytest.raises(DareError, match=match):
        reward("a response", instruction_id_list=names, kwargs=kwargs)


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("part", ["a ", ".", "<<", "[", "*", "a.\n", "***", '"', "-\n", "p. ", "A-", "SECTION "])
def test_no_text_takes_long(name, part):
    began = time.perf_counter()
    text = (part * MAX_LENGTH)[:MAX_LENGTH]
    ifeval_loose(text, instruction_id_list=[name], kwargs=[arguments(name)])
    assert time.perf_counter() - began < 10.0


def test_eight_variants_as_published():
    text = "*a*\nb\n*c*"
    expected = [text, "a\nb\nc", "b\n*c*", "b\nc", "*a*\nb", "a\nb", "b", "b"]
    assert [*variants(text)] == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One. ", 1),
        ("One. Two", 2),
        ("Mr. Smith left. He was late.", 2),
        ("It costs 3.50 now.", 1),
        ("What?! No...", 2),
        ("J. R. R. Tolkien wrote.", 1),
        ("He said (no.) Then left.", 2),
    ],
)
def test_sentences(text, count):
    assert sentences(text) == count
