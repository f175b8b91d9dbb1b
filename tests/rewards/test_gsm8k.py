import pytest

from dare.errors import DareError
from dare.rewards.gsm8k import gsm8k, gsm8k_flexible


def test_the_mark_comes_before_the_box() -> None:
    text = "\\boxed{17}\n#### 18"
    assert gsm8k(text, ground_truth="18", question="?") == 1.0
    assert gsm8k(text, ground_truth="17") == 0.0


def test_strict_needs_a_mark_where_flexible_does_not() -> None:
    assert gsm8k("It is 18.", ground_truth="18") is None
    assert gsm8k_flexible("It is 18.", ground_truth="18", question="?") == 1.0


def test_the_truth_may_be_a_worked_answer() -> None:
    assert gsm8k("#### 2125", ground_truth="1000 + 1125 = 2125\n#### 2,125") == 1.0


@pytest.mark.parametrize("grade", [gsm8k, gsm8k_flexible])
@pytest.mark.parametrize("truth", ["", "many", "3 or 4"])
def test_a_truth_that_is_no_number_is_named(grade, truth: str) -> None:
    with pytest.raises(DareError, match="ground_truth is"):
        grade("#### 3", ground_truth=truth)
