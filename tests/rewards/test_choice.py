"""Multiple choice: rows that say nothing, and choices that share a text."""

import pytest

from dare.errors import DareError
from dare.rewards.choice import multiple_choice


@pytest.mark.parametrize("truth", ["the dog", "E", 4, -1, None, True, 1.5, ""])
def test_a_truth_that_is_no_choice(truth):
    with pytest.raises(DareError, match=r"ground_truth is .*write one of A, B, C, D, a number from 0"):
        multiple_choice("A", ground_truth=truth, choices=["w", "x", "y", "z"])


@pytest.mark.parametrize("choices", [[], "ABCD", {"text": ["a"]}, {"label": ["A"], "text": ["a", "b"]}, ["x"] * 27])
def test_choices_that_are_none(choices):
    with pytest.raises(DareError, match="choices is"):
        multiple_choice("A", ground_truth="A", choices=choices)


def test_a_text_that_two_choices_share_names_neither():
    choices = ["same", "same", "other"]
    assert multiple_choice("same", ground_truth="A", choices=choices) is None
    assert multiple_choice("A", ground_truth="A", choices=choices) == 1.0
    with pytest.raises(DareError, match="write one of A, B, C"):
        multiple_choice("A", ground_truth="same", choices=choices)
