from fractions import Fraction

import pytest

from dare.errors import DareError
from dare.rewards.arithmetic import countdown, countdown_plain, digit_sums, evaluate

HOSTILE = [
    "",
    "9**9**9",
    "9//2",
    "__import__('os')",
    "(" * 90 + "1" + ")" * 90 + "+1" * 20,
    "(" * 5000 + "1" + ")" * 5000,
    "1+" * 99 + "1" * 50,
    "١+٢",
    "²",
    "1e9",
    "0x10",
    "1_000",
    "2.5",
    "-3",
    "+3",
    "2*-3",
    "1/0",
    "1/(2-2)",
    "3(4)",
    "1,2",
    "1 2",
    "1\n+2",
    "007",
    "()",
    "1+",
    "a",
    "True",
    "1;2",
    "1\x00",
    "7=7",
]


@pytest.mark.parametrize(
    ("text", "value", "used"),
    [
        ("44+19+35", Fraction(98), [44, 19, 35]),
        (" 2*(3-4) ", Fraction(-2), [2, 3, 4]),
        ("1/3+2/3", Fraction(1), [1, 3, 2, 3]),
        ("8-3-2", Fraction(3), [8, 3, 2]),
        ("(" * 60 + "1" + ")" * 60, Fraction(1), [1]),
        ("1+" * 99 + "1", Fraction(100), [1] * 100),
    ],
)
def test_evaluate(text: str, value: Fraction, used: list[int]) -> None:
    assert evaluate(text) == (value, used)


@pytest.mark.parametrize("text", HOSTILE)
def test_everything_but_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text)
    assert countdown(f"<answer>{text}</answer>", ground_truth="1", numbers="[1]") == 0.1
    assert countdown_plain(text, ground_truth="1", numbers="[1]") is None


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("<answer>44+19+35</answer>", 1.0),
        ("<answer>1</answer> no: <answer>\n(35+19)+44\n</answer>", 1.0),
        ("<answer>44+19+35 = 98</answer>", 0.1),
        ("<answer>98</answer>", 0.1),
        ("<answer>44+54</answer>", 0.1),
        ("<answer>44+19+35+35-35</answer>", 0.1),
        ("<answer>44+19-35</answer>", 0.1),
        ("44+19+35", None),
    ],
)
@pytest.mark.parametrize("numbers", ["[44, 19, 35]", [44, 19, 35]])
def test_countdown(completion: str, score: float | None, numbers: str | list[int]) -> None:
    assert countdown(completion, ground_truth="98", numbers=numbers, index=0) == score


@pytest.mark.parametrize(
    ("completion", "score"),
    [("3*7+2", 1.0), (" 2 + 7*3\n", 1.0), ("3+7+2", 0.1), ("23", 0.0), ("3*7+2+0", 0.0), ("3*7+", None)],
)
def test_countdown_plain(completion: str, score: float | None) -> None:
    assert countdown_plain(completion, ground_truth="23", numbers="[3, 7, 2]", index=0) == score


def test_exact_where_floats_are_not() -> None:
    assert countdown_plain("1/49*49", ground_truth="1", numbers=[1, 49, 49]) == 1.0
    assert countdown_plain("3/(1-2/3)", ground_truth="9", numbers=[3, 1, 2, 3]) == 1.0
    big = "9" * 20
    assert countdown_plain(f"{big}+1-{big}", ground_truth="0", numbers=[int(big), 1, int(big)]) == 0.1


def test_a_broken_row_is_named() -> None:
    with pytest.raises(DareError, match="ground_truth is 'x'"):
        countdown_plain("1", ground_truth="x", numbers="[1]")
    with pytest.raises(DareError, match="numbers is '1;2'"):
        countdown_plain("1", ground_truth="1", numbers="1;2")


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("4+9 2+5 6+5", 1.0),
        ("9+4 5+2 5+6", 1.0),
        ("4+8 2+5 6+5", 2 / 3),
        ("2+5 4+9 6+5", 1 / 3),
        ("4+9 2+5", None),
        ("4+9  2+5 6+5", None),
        ("0+9 2+5 6+5", None),
        ("４+9 2+5 6+5", None),
        ("", None),
    ],
)
def test_digit_sums(completion: str, score: float | None) -> None:
    assert digit_sums(completion, ground_truth="13 7 11", index=3) == score
