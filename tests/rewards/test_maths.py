from fractions import Fraction

import pytest

from dare.rewards.latex import normalise, number
from dare.rewards.maths import boxed, hashes
from dare.rewards.registry import DEFAULT_REWARD, REWARDS
from graders import reward

SAME = [
    (r"\frac12", r"\dfrac{1}{2}"),
    ("0.5", r"\frac{1}{2}"),
    (".5", "0.50"),
    ("1/2", r"\tfrac 12"),
    (r"\frac{2}{4}", r"\frac{1}{2}"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"1\frac{4}{5}", "1.8"),
    ("3 1/2", r"\frac{7}{2}"),
    ("x = 5", "5"),
    (r"x \in [1, 2]", "[1,2]"),
    ("9,492", "9492"),
    (r"32,\!000,\!000", "32000000"),
    ("24{,}000", "24000"),
    (r"\$36.00", "36"),
    (r"17\%", "17"),
    (r"120^\circ", "120"),
    (r"72^{\circ}", "72 degrees"),
    (r"5.4 \text{ cents}", "5.4"),
    (r"10\text{ cm}^2", "10"),
    (r"\text{even}", "even"),
    (r"\text{(C)}", "C"),
    ("18.", "18"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}2)"),
    (r"(0.5, \infty)", r"\left(\frac12,\infty\right)"),
    ("[0,2)", "[0, 2.0)"),
    ("3,1,5", "3, 1, 5"),
    (r"\{1, 2\}", r"\left\{1,2\right\}"),
    (r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}", r"\begin{pmatrix}\frac{1}{5}\\-\frac{18}{5}\end{pmatrix}"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("x^{2}", "x^2"),
    ("−3", "-3"),
]
DIFFERENT = [
    ("5", "6"),
    ("0.333", r"\frac{1}{3}"),
    (r"\frac{1}{0}", r"\frac{2}{0}"),
    ("(1,2)", "[1,2]"),
    ("(1,2)", "(1,2]"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "(1,2,3)"),
    ("12", "1,2"),
    ("1,2", "(1,2)"),
    ("81256", "81, 256"),
    ("3 1/2", r"\frac{31}{2}"),
    ("1e9", "1000000000"),
    ("١", "1"),
    ("__import__('os')", "0"),
    ("9**9", "387420489"),
    ("%", "$"),
    ("2x", "x2"),
    ("9" * 6000, "9"),
    ("(" * 3000, "1"),
    ("1011_2", "1011"),
    (r"\text{ even}", "odd"),
]


@pytest.mark.parametrize(("answer", "truth"), SAME)
def test_equal_answers(answer: str, truth: str) -> None:
    assert boxed(rf"so \boxed{{{answer}}}.", ground_truth=truth) == 1.0
    assert boxed(rf"so \boxed{{{truth}}}.", ground_truth=answer) == 1.0


@pytest.mark.parametrize(("answer", "truth"), DIFFERENT)
def test_unequal_answers(answer: str, truth: str) -> None:
    assert boxed(rf"\boxed{{{answer}}}", ground_truth=truth) == 0.0
    assert boxed(rf"\boxed{{{truth}}}", ground_truth=answer) == 0.0


@pytest.mark.parametrize("completion", ["", "5", r"\boxed{5", r"\boxed{ }", "#### 5"])
def test_no_box_is_a_parse_failure(completion: str) -> None:
    assert boxed(completion, ground_truth="5") is None


def test_hashes() -> None:
    assert hashes("48/2 = 24\n#### 9,492", ground_truth="9492", question="?") == 1.0
    assert hashes("#### 24 #### $ 72", ground_truth="72") == 1.0
    assert hashes("#### 71", ground_truth="72") == 0.0
    assert hashes(r"\boxed{72}", ground_truth="72") is None


@pytest.mark.parametrize("text", [r"\frac12", "3 1/2", r"32,\!000", "x = .5", r"1.85\ \text{USD}", "(1, 2)"])
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_number() -> None:
    assert number(r"-1\frac{1}{2}") == Fraction(-3, 2)
    assert number(r"\frac{1}{0}") is None
    assert number("x") is None


def test_registry() -> None:
    assert reward("boxed") is boxed
    assert set(DEFAULT_REWARD.values()) <= set(REWARDS)
