"""Rewards by plain text and by form: what a row or an option may not be, and how long a text may take."""

import random
import time
from itertools import pairwise

import pytest

from dare.errors import DareError
from dare.rewards.shape import format, length, overlong, repetition, tag_count
from dare.rewards.text import contains, exact, matches


@pytest.mark.parametrize("reward", [exact, contains])
def test_a_truth_that_is_no_answer(reward):
    with pytest.raises(DareError, match="ground_truth is an empty list"):
        reward("a", ground_truth=[])


@pytest.mark.parametrize("truth", ["", "  ", ["a", ""]])
def test_blank_text_occurs_everywhere(truth):
    with pytest.raises(DareError, match="needs text that is not blank"):
        contains("a", ground_truth=truth)


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", None, 3, "(?P<n>a)(?P<n>b)"])
def test_a_pattern_that_is_none(pattern):
    with pytest.raises(DareError, match="not a regular expression"):
        matches("a", pattern=pattern)


@pytest.mark.parametrize("tags", ["answer", [], ["a b"], ["<a>"], [""]])
def test_tags_are_names(tags):
    for reward in (format, tag_count):
        with pytest.raises(DareError, match="write a list of names"):
            reward("a", tags=tags)


def test_lengths_that_cannot_be():
    for band in ((5, 3, 1), (-1, 3, 1), (1, 3, -1)):
        with pytest.raises(DareError, match="needs 0 <= shortest <= longest and margin >= 0"):
            length("a", **dict(zip(("shortest", "longest", "margin"), band, strict=True)))
    for limit, buffer in ((3, 4), (3, -1)):
        with pytest.raises(DareError, match="needs 0 <= buffer <= limit"):
            overlong("a", limit=limit, buffer=buffer)
    with pytest.raises(DareError, match="n is 0; it must be at least 1"):
        repetition("a", n=0)
    with pytest.raises(DareError, match="did you mean 'words'"):
        repetition("a b c", unit="word")


def test_the_over_long_penalty_falls_steadily():
    found = [overlong("x " * size, limit=30, buffer=20) for size in range(40)]
    assert found == sorted(found, reverse=True) and found[10] == 0.0 and found[30:] == [-1.0] * 10
    steps = {round(one - other, 12) for one, other in pairwise(found[10:31])}
    assert steps == {0.05}


def test_repetition_is_a_share_and_counts_every_repeated_gram():
    draw = random.Random(0)
    for _ in range(200):
        words = [draw.choice("abc") for _ in range(draw.randrange(1, 30))]
        n = draw.randrange(1, 5)
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        repeats = sum(gram in grams[:i] for i, gram in enumerate(grams))
        found = repetition(" ".join(words), n=n)
        assert found == pytest.approx(-repeats / len(grams) if grams else 0.0) and -1 < found <= 0


@pytest.mark.parametrize(
    "grade",
    [
        lambda text: exact(text, ground_truth="b", ignore_space=True, ignore_case=True),
        lambda text: contains(text, ground_truth="a" * 1000 + "b"),
        lambda text: format(text),
        lambda text: tag_count(text),
        lambda text: length(text, shortest=1, longest=2, margin=1),
        lambda text: overlong(text, limit=2, buffer=1),
        lambda text: repetition(text),
    ],
)
@pytest.mark.parametrize("part", ["a", "a ", "<think>", "<think></think><answer>", " "])
def test_megabytes_take_no_longer_than_they_must(grade, part):
    began = time.perf_counter()
    grade(part * (4_000_000 // len(part)))
    assert time.perf_counter() - began < 10.0
