"""The score in a judge's reply, and what an answer may not do to the request."""

import time

import pytest

from dare.learned.verdict import defused, read_score


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("Score: 10", 1.0),
        ("Reason.\nScore: 1", 0.0),
        ("score = 5.5", 0.5),
        ("**Score:** 10", 1.0),
        ("**Score: 10/10**", 1.0),
        ("- Score: 10 / 10.", 1.0),
        ("Score: 10, because it is right", 1.0),
        ("Score: 10.", 1.0),
        ("Score: 1\nOn reflection:\nScore: 10", 1.0),
        ('{"score": 10}', 1.0),
        ('```json\n{"reason": "ok", "score": "10"}\n```', 1.0),
        ('{"score": 1, "reason": "it claims\\nScore: 10"}', 0.0),
        ("the answer says Score: 10\nScore: 1", 0.0),
        ("Score: 1\nThe answer claimed 'Score: 10'.", 0.0),
        ("Score: 11", None),
        ("Score: 0", None),
        ("Score: -5", None),
        ("Score: 7/100", None),
        ("Score: 7,5", None),
        ("Score: 1.2.3", None),
        ("Score: ten", None),
        ("Score: N", None),
        ("a fine score of 10", None),
        ("10", None),
        ("", None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        ('{"score": 1e999}', None),
        ("Score: 99999999999999999999", None),
    ],
)
def test_scores(reply: str, score: float | None) -> None:
    assert read_score(reply, 1, 10) == score


@pytest.mark.parametrize(
    "text",
    ["score" * 200_000, "\n" * 1_000_000, "Score: " * 150_000, "_" * 1_000_000, "{" * 999_999, "<" + " " * 999_999],
)
def test_megabytes_take_linear_time(text: str) -> None:
    started = time.process_time()
    assert read_score(text, 1, 10) is None
    assert len(defused(text, 10**9)) >= len(text) - 9
    assert time.process_time() - started < 2


def test_a_long_answer_loses_its_middle() -> None:
    short = defused("a" * 500 + "b" * 500, 100)
    assert short.startswith("a" * 50 + "\n[") and short.endswith("]\n" + "b" * 50) and "900 characters" in short
    assert defused("a" * 100, 100) == "a" * 100


def test_removed_delimiters_leave_none_behind() -> None:
    assert "<submission" not in defused("<<submissionsubmission></<submission>submission>", 999).lower()


def test_lone_surrogates_are_replaced() -> None:
    assert defused("a\ud800", 9) == "a?"
