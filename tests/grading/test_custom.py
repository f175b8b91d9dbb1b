"""Rewards of the user's own: found, checked, called, and what happens when they fail."""

import os
import threading
from pathlib import Path

import pytest

from dare.errors import DareError
from dare.grading.config import GradingConfig, RewardConfig
from dare.grading.grader import Grader
from dare.traces.trace import spelled
from dare.types import Example
from graders import grade

FILE = str(Path(__file__).with_name("custom_rewards.py"))
ROWS = [Example((), {"ground_truth": truth, "row": number}) for number, truth in enumerate(["aa", "b", "c"])]
TEXTS = ["aa", "x", "c"]


def grader(rewards: dict, **grading) -> Grader:
    return Grader(
        {name: RewardConfig.model_validate(value) for name, value in rewards.items()}, GradingConfig(**grading)
    )


def totals(name: str, **options) -> list[float]:
    return [one.total for one in grade(TEXTS, ROWS, {f"{FILE}:{name}": {"weight": 1.0, **options}})]


def test_by_path_one_at_a_time_and_all_at_once():
    assert totals("vowels") == [1.0, 0.0, 0.0]
    assert totals("together") == [1.0, 0.0, 1.0]
    assert totals("together", bonus=0.5) == [1.5, 0.5, 1.5]
    assert totals("array") == [1.0, 1.0, 1.0]


def test_by_module_from_the_working_folder(monkeypatch, tmp_path):
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "my_pkg" / "my_module.py").write_text(
        "from my_pkg.helper import ONE\ndef my_reward(completion, **_):\n    return ONE\n"
    )
    (tmp_path / "my_pkg" / "helper.py").write_text("ONE = 1\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('a file of the user took the place of a library')\n")
    monkeypatch.chdir(tmp_path)
    found = grade(TEXTS, ROWS, {"my_pkg.my_module.my_reward": 0.5})
    assert [one.total for one in found] == [0.5, 0.5, 0.5]


def test_columns_and_parts():
    row = Example(({"role": "user", "content": "?"},), {"colour": "red", "size": 3, "backend": "any"})
    found = grade(["text"], [row], {f"{FILE}:columns": 1.0})[0]
    assert found.parts == {f"{FILE}:columns/colour": 3.0, f"{FILE}:columns/rest": 4.0}  # prompt and trajectory too


def test_the_way_an_answer_came_about():
    with grader({f"{FILE}:patience": 1.0}) as own:
        found = own.grade(TEXTS, ROWS, lambda: [spelled("two words"), spelled("one"), None])
    assert [one.total for one in found] == [2.09, 1.03, 0.0] and [one.parsed for one in found] == [True, True, False]


def test_equal_answers_are_graded_once_and_the_past_is_bounded():
    with grader({f"{FILE}:process": 1.0}, cache=2) as own:
        first = own.grade(["a", "a", "b"], ROWS[:1] * 3)
        assert len({one.total for one in first}) <= 2 and os.getpid() not in {one.total for one in first}
        own._pool.close()
        assert own.grade(["a", "b"], ROWS[:1] * 2) == [first[0], first[2]]
        own.grade(["c"], ROWS[:1])
        assert own.grade(["a"], ROWS[:1]) != first[:1]


def test_without_workers_it_runs_here():
    with grader({f"{FILE}:process": 1.0}, workers=0) as own:
        assert own.grade(["a"], ROWS[:1])[0].total == os.getpid()


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (f"{FILE}:vowel", {}, "has no function 'vowel'"),
        (f"{FILE}x.py:vowels", {}, "does not exist; correct its path"),
        (FILE, {}, r"write package.module.function or path/to/file.py:function"),
        ("my_pkg.nowhere.reward", {}, "there is no module 'my_pkg'; install it"),
        ("json.nowhere", {}, "module json has no function 'nowhere'"),
        (f"{FILE}:vowels", {"speed": 3}, "no option 'speed'"),
        (f"{FILE}:columns", {}, "needs 'colour', which a row lacks"),
        (f"{FILE}:short", {}, "gave 2 values for 3 completions"),
        (f"{FILE}:nothing", {}, "gave None for 3 completions"),
        (f"{FILE}:misbehave", {"weight": 1.0}, "completion 'raise': it raised ValueError"),
    ],
)
def test_it_is_tried_on_three_rows_before_a_run(name, options, match):
    rows = [Example((), one.columns, answer="raise") for one in ROWS]
    with grader({name: options}, on_failure="zero") as own, pytest.raises(DareError, match=match):
        own.check(rows)


def test_a_bad_signature_says_what_to_write(tmp_path):
    (tmp_path / "bad.py").write_text("def none():\n    return 1\ndef star(*texts):\n    return 1\n")
    for name in ("none", "star"):
        with grader({f"{tmp_path}/bad.py:{name}": 1.0}) as own, pytest.raises(DareError, match=r"\(completion, \*"):
            own.check(ROWS)


def test_a_module_that_hangs_or_fails_while_it_is_imported(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    for name, match in (("slow", "took longer than 0.5 s"), ("broken", "raised ZeroDivisionError")):
        with grader({f"{tmp_path}/{name}.py:f": 1.0}, seconds=0.5) as own, pytest.raises(DareError, match=match):
            own.check(ROWS)


@pytest.mark.parametrize("what", ["raise", "nan", "text", "sleep", "kill", "exit"])
def test_policies(what):
    rewards, texts = {f"{FILE}:misbehave": 0.5, "exact": 1.0}, ["aa", what, "c"]
    with grader(rewards, seconds=2.0) as own, pytest.raises(DareError, match=f"failed on row 1, completion '{what}'"):
        own.grade(texts, ROWS)
    with grader(rewards, seconds=2.0, on_failure="zero") as own:
        found = own.grade(texts, ROWS)
        assert [one.total for one in found] == [1.5, 0.0, 1.5]
        assert [one.failed for one in found] == [False, True, False] and not any(one.dropped for one in found)
        counted = own.counts.take()
        assert (
            counted[f"reward/{FILE}:misbehave/failed"] == pytest.approx(1 / 3) and counted["reward/exact/failed"] == 0
        )
        assert counted[f"time/reward/{FILE}:misbehave"] > 0
        (news,) = own.counts.news()
        assert news.startswith(f"reward '{FILE}:misbehave' failed: ") and not own.counts.news()
    with grader(rewards, seconds=2.0, on_failure="drop") as own:
        assert [one.dropped for one in own.grade(texts, ROWS)] == [False, True, False]


def test_a_batch_that_fails_fails_as_a_whole():
    with grader({f"{FILE}:short": 1.0}, on_failure="drop") as own:
        assert [one.dropped for one in own.grade(TEXTS, ROWS)] == [True] * 3


def test_an_answer_that_hangs_a_verifier_is_to_blame_itself():
    """PITFALL: verifiers with time-outs of their own scored 0 off the main thread, and without them hung the run."""
    row = Example((), {"pattern": "(a+)+b", "ground_truth": "1"})
    with grader({"matches": 1.0}, seconds=1.0) as own:
        found = own.grade(["a" * 40, "ab"], [row] * 2)
        assert [one.total for one in found] == [0.0, 1.0]
        assert found[0].failed and not found[0].parsed and not found[0].dropped
        assert own.counts.take()["reward/matches/failed"] == 0.5
        assert own.grade(["b", "ab"], [row] * 2)[1].total == 1.0


def test_a_thread_grades_as_the_main_thread_does():
    rows = [Example((), {"ground_truth": "1/2"})] * 3
    texts = [r"\boxed{0.5}", r"\boxed{\frac{1}{3}}", r"\boxed{9^{9^{9^{9}}}}"]
    with grader({"math": 1.0}) as own:
        found = own.grade(texts, rows)
        other: list = []
        thread = threading.Thread(target=lambda: other.extend(own.grade(texts, rows)))
        thread.start()
        thread.join()
    assert [one.total for one in found] == [1.0, 0.0, 0.0] and other == found
