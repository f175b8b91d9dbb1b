import numpy as np
import pytest
import torch

from dare.errors import DareError
from dare.rewards.registry import REWARDS
from dare.types import Example
from graders import grade


def test_a_record_counts_by_the_sum_of_its_parts():
    text = "<reasoning>\nr\n</reasoning>\n<answer>\n18\n</answer>\n"
    found = grade([text], [Example((), {"ground_truth": "18"})], {"d1_gsm8k": 0.5})[0]
    assert found.scores["d1_gsm8k"] == pytest.approx(2.0 + 3 * 0.5 + 0.5) and found.parsed
    assert found.total == pytest.approx(0.5 * found.scores["d1_gsm8k"])


def test_data_cannot_set_a_reward_up():
    row = Example((), {"ground_truth": '["assert f() == 1"]', "backend": "nowhere", "seconds": -1})
    assert grade(["no program"], [row], {"mbpp": 1.0})[0].parsed is False
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "mine", lambda completion, seconds=7, **_: seen.append(seconds) or 1.0)
        grade(["text"], [row], {"mine": 1.0})
        grade(["text"], [row], {"mine": {"seconds": 3}})
    assert seen == [7, 3]


def test_a_record_is_read_by_its_parts_or_by_its_score():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "sum", lambda completion, **_: {"style": 0.25, "content": 0.5})
        patch.setitem(REWARDS, "own", lambda completion, **_: {"score": 1, "bonus": 9.0})
        found = grade(["text"], [Example((), {})], {"sum": 2.0, "own": 1.0})[0]
    assert found.scores == {"sum": 0.75, "own": 1.0} and found.total == 2.5
    assert found.parts == {"sum/style": 0.25, "sum/content": 0.5, "own/score": 1.0, "own/bonus": 9.0}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {"part": float("nan")}, {}, "1", [1.0], {"a": None}, 10**400], ids=repr
)
def test_what_is_no_score_names_the_reward_and_the_answer(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "mine", lambda completion, **_: value)
        with pytest.raises(DareError, match=r"'mine' failed on row 5, completion 'text': "):
            grade(["text"], [Example((), {"row": 5})], {"mine": 1.0})


def test_numbers_of_every_library_are_numbers():
    values = iter([True, 1, np.float32(1), np.array(1), torch.tensor(1.0)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REWARDS, "mine", lambda completion, **_: next(values))
        assert [one.total for one in grade(["text"] * 5, [Example((), {})] * 5, {"mine": 1.0})] == [1.0] * 5


def test_form_does_not_decide_what_is_correct_unless_it_is_alone():
    row = Example((), {"ground_truth": "18"})
    mixed = {"gsm8k": 1.0, "overlong": {"limit": 50, "buffer": 10}}
    assert [one.correct for one in grade(["#### 18", "#### 19"], [row] * 2, mixed)] == [True, False]
    assert grade(["#### 18"], [row], {"format": 1.0})[0].correct is False
    told = {"gsm8k": {"decides": False}, "contains": {"decides": True}}
    assert grade(["18"], [row], told)[0].correct is True


def test_a_reward_can_be_used_twice_under_names_of_its_own():
    rewards = {"digits": {"name": "contains", "ground_truth": "1"}, "letters": {"name": "contains", "weight": 0.5}}
    found = grade(["a1"], [Example((), {"ground_truth": "b"})], rewards)[0]
    assert found.scores == {"digits": 1.0, "letters": 0.0} and found.total == 1.0


@pytest.mark.parametrize(
    ("rewards", "match"),
    [
        ({"sudok": 1.0}, "did you mean 'sudoku'"),
        ({"length": {"longst": 4}}, "no option 'longst'; did you mean 'longest'"),
        ({"length": {"longest": 4}}, "needs 'shortest', which a row lacks"),
        ({"reward_model": 1.0}, "task.rewards.reward_model: missing a required argument: 'path'"),
        ({"judge": {"url": "http://127.0.0.1:1", "modl": "m"}}, "task.rewards.judge"),
        (None, "data_source 'None' has no usual reward"),
    ],
)
def test_a_wrong_setting_says_what_to_do(rewards, match):
    with pytest.raises(DareError, match=match):
        grade(["text"], [Example((), {"ground_truth": "1"})], rewards)
