import json
import re
from pathlib import Path

import pytest

from dare.errors import DareError
from dare.rewards.gym import EXECUTED, reasoning_gym

library = pytest.importorskip("reasoning_gym")
RUNS_TEXT = re.compile(r"(?<![\w.])(?:eval|exec|parse_expr|sympify)\(|\b(?:sp|sympy)\.(?:parse_expr|sympify)\(")
HARMLESS = {"codeio", "bitwise_arithmetic", "basic_arithmetic", "number_sorting", "propositional_logic"}
"""Tasks that run text of their own making, or have a parser of that name."""


def generated(task: str) -> dict:
    return library.create_dataset(task, size=1, seed=7)[0]


@pytest.mark.parametrize("task", [*EXECUTED, "basic_arithmetic", "mini_sudoku", "arc_agi", "rearc"])
def test_the_stored_answer_scores_full_marks(task: str) -> None:
    entry = generated(task)
    text = f"<answer>{entry['answer']}</answer>"
    assert reasoning_gym(text, source_dataset=task, entry=entry) == 1.0
    assert reasoning_gym(text, entry=json.dumps(entry)) == 1.0
    assert reasoning_gym(text, **json.loads(json.dumps(entry)), index=0) == 1.0


@pytest.mark.parametrize("task", EXECUTED)
def test_an_answer_is_not_executed(task: str, tmp_path: Path) -> None:
    target, entry = tmp_path / "executed", generated(task)
    for code in (f"open({str(target)!r},'w')", f"[].__class__.__name__ or open({str(target)!r},'w')"):
        assert reasoning_gym(f"<answer>{code}</answer>", entry=entry) == 0.0
    assert not target.exists()


def test_the_tasks_that_execute_text_are_known() -> None:
    root = Path(library.__file__).parent
    sources = (path for path in root.rglob("*.py") if not path.stem.startswith("generators"))
    assert {path.stem for path in sources if RUNS_TEXT.search(path.read_text("utf-8"))} - HARMLESS == set(EXECUTED)


@pytest.mark.parametrize("answer", ["44+54", "44+19", "44+19+35+0", "98", "44+19+35+35-35"])
def test_countdown_refuses_other_numbers_than_the_given(answer: str) -> None:
    entry = {"question": "?", "answer": "44+19+35", "metadata": {"numbers": [44, 19, 35], "target": 98}}
    assert reasoning_gym(f"<answer>{answer}</answer>", source_dataset="countdown", entry=entry) < 0.1


def test_an_answer_that_cannot_be_graded_is_wrong_and_a_row_that_cannot_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = generated("countdown")

    def score_answer(answer: str, entry: dict) -> float:
        return float(int(answer)) if "bad" not in entry["metadata"] else entry["metadata"]["missing"]

    monkeypatch.setattr("dare.rewards.gym._scorer", lambda name: score_answer)
    assert reasoning_gym("<answer>1+</answer>", entry={**entry, "answer": "1"}) == 0.0
    with pytest.raises(DareError, match="entry of task 'countdown' cannot be graded"):
        reasoning_gym("<answer>1</answer>", entry={**entry, "metadata": {**entry["metadata"], "bad": 1}})


@pytest.mark.parametrize("row", [{"entry": "{"}, {"entry": {}}, {"entry": 3}, {}, {"answer": "1", "metadata": "x"}])
def test_a_broken_row_is_named(row: dict) -> None:
    with pytest.raises(DareError, match="entry is"):
        reasoning_gym("<answer>1</answer>", source_dataset="countdown", **row)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(DareError, match=r"'countdwn'.*did you mean 'countdown'"):
        reasoning_gym("<answer>1</answer>", source_dataset="countdwn", entry=generated("countdown"))
