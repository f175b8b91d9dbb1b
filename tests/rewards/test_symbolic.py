from concurrent.futures import ThreadPoolExecutor

import pytest

from dare.errors import DareError
from dare.rewards import optional, symbolic
from dare.rewards.guards import explosive
from dare.rewards.symbolic import math

PAIRS = [
    ("(x+1)^2", "x^2+2x+1"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    ("y=1+2x", "y=2x+1"),
    ("x+2", "x+1"),
    (r"\{1\}", r"\{1,2\}"),
]


def scores() -> list[float | None]:
    return [math(rf"\boxed{{{answer}}}", ground_truth=truth) for answer, truth in PAIRS]


def test_a_worker_thread_scores_like_the_main_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(scores).result() == scores() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_an_error_of_the_library_is_not_taken_for_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise ValueError("signal only works in main thread of the main interpreter")

    monkeypatch.setattr(symbolic._math_verify(), "verify", broken)
    with pytest.raises(ValueError, match="signal"):
        math(r"\boxed{x+1}", ground_truth="1+x")


def test_a_missing_library_is_named() -> None:
    with pytest.raises(DareError, match=r"needs no_such_library.*pip install 'dare\[rewards\]'"):
        optional.optional("no_such_library")


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "9^{9^{9^9}}",
            "9^9^9",
            "9**9**9",
            "(9^9)^9",
            "9^{9+9^9}",
            r"9^{\left(9^9\right)}",
            "9 ^ { 9 ^ 9 }",
            "2^{2^n}",
        ),
        *("2^{99999}", "2^-99999", "99999!", "((9!)!)!", "9^{9!}", "{" * 11 + "1" + "}" * 11),
    ],
)
def test_explosive(expression: str) -> None:
    assert explosive(expression)


@pytest.mark.parametrize(
    "expression",
    ["", "x^2+y^2", "x^{10}", "2^{1000}", "(x+1)^2(x-1)^2", "(n+1)!-1", "x^{n+1}-x^{n}", r"\frac{1}{2^n}", "n!"],
)
def test_not_explosive(expression: str) -> None:
    assert not explosive(expression)
