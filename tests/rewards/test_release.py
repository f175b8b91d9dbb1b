import pytest

from dare.errors import DareError
from dare.rewards.algebra import equal
from dare.rewards.arithmetic import MAX_BITS, python_value
from dare.rewards.maths import boxed
from dare.rewards.release import hendrycks, release_countdown, release_math


@pytest.mark.parametrize(
    ("answer", "truth", "release"),
    [
        (r"\frac{2}{4}", r"\frac{1}{2}", 0.0),
        (r"\frac{4}{2}", "2", 0.0),
        (r"18\text{ or }19", "18", 1.0),
        ("x+1", "1+x", 1.0),
    ],
)
def test_where_the_release_and_boxed_differ(answer: str, truth: str, release: float) -> None:
    text = rf"\boxed{{{answer}}}"
    assert release_math(text, ground_truth=truth, index=0) == release != boxed(text, ground_truth=truth)


@pytest.mark.parametrize(
    "expression", ["44+19*35", "(1+2)*-3", "7//2", "-7//2", "2**3", "2**-1", "4**(1/2)", "2.5*2", "1/3+1/7"]
)
def test_python_value_is_pythons(expression: str) -> None:
    assert float(python_value(expression)) == pytest.approx(eval(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        f"2**{MAX_BITS}",
        "(0-8)**(1/3)",
        "1/0",
        "0**-1",
        "7//0",
        "1(2)",
        "1,2",
        "a",
        "1_0",
        "-" * 900 + "1",
        "",
    ],
)
def test_python_value_refuses(expression: str) -> None:
    with pytest.raises(ValueError):
        python_value(expression)


def test_countdown_numbers_are_runs_of_digits() -> None:
    assert release_countdown("<answer>-44+19+35</answer>", ground_truth="10", numbers="[44, 19, 35]", index=0) == 1.0
    with pytest.raises(DareError, match="numbers is '1;2'"):
        release_countdown("<answer>1+2</answer>", ground_truth="3", numbers="1;2")


@pytest.mark.parametrize("text", ["2x+1", "sqrt(2)/2", "x^2", "3pi", "(x+1)(x-1)", ".5x", "-x"])
def test_equal_to_itself_and_not_to_one_more(text: str) -> None:
    assert equal(text, f"({text})")
    assert not equal(text, f"({text})+1")


@pytest.mark.parametrize(
    "text", ["", "x2", "1.2.3", "foo(", "1,2", "9^9^9^9", "(9^999)^999", "()", "x=1", "1/0", "2**"]
)
def test_what_is_no_expression_equals_nothing(text: str) -> None:
    assert not equal(text, text)


def test_hendrycks() -> None:
    assert hendrycks(r"x = \tfrac12") == r"\frac{1}{2}"
    assert hendrycks(r"1\text{ a} 2\text{ b}") == r"1\text{ a} 2\text{ b}"
