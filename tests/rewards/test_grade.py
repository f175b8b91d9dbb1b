import pytest

from dare.errors import DareError
from dare.rewards.grade import grade
from dare.rewards.registry import REWARDS
from dare.types import Example


def test_a_record_counts_by_the_sum_of_its_parts():
    text = "<reasoning>\nr\n</reasoning>\n<answer>\n18\n</answer>\n"
    found = grade([text], [Example((), {"ground_truth": "18"})], {"d1_gsm8k": 0.5})[0]
    assert found.scores["d1_gsm8k"] == pytest.approx(2.0 + 3 * 0.5 + 0.5) and found.parsed
    assert found.total == pytest.approx(0.5 * found.scores["d1_gsm8k"])


def test_data_cannot_set_a_reward_up():
    row = Example((), {"ground_truth": '["assert f() == 1"]', "backend": "nowhere", "seconds": -1})
    assert grade(["no program"], [row], {"mbpp": 1.0})[0].parsed is False
    seen = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "mine", lambda completion, **columns: seen.update(columns) or 1.0)
        grade(["text"], [row], {"mine": 1.0})
    assert set(seen) == {"ground_truth"}


def test_a_record_that_is_not_finite_is_refused():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "mine", lambda completion, **_: {"part": float("nan")})
        with pytest.raises(DareError, match="'mine' gave nan"):
            grade(["text"], [Example((), {})], {"mine": 1.0})
