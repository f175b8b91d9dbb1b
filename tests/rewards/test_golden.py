"""Every line of ``golden/NAME.jsonl`` is one answer and the score that the rule of reward NAME gives it."""

import json
from pathlib import Path

import pytest

from bubblewrap import needs_bwrap
from dare.rewards.registry import REWARDS
from graders import reward

SANDBOXED = {"humaneval", "mbpp", "unit_tests"}
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.jsonl"))
GRADED = [pytest.param(path, marks=needs_bwrap) if path.stem in SANDBOXED else path for path in GOLDEN]


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def text_of(completion: str | dict) -> str:
    return completion if isinstance(completion, str) else completion["text"] * completion["times"]


@pytest.mark.parametrize("path", GRADED, ids=lambda path: path.stem)
def test_scores_of(path: Path) -> None:
    function, wrong = reward(path.stem), []
    for number, row in enumerate(rows(path), 1):
        found = function(text_of(row["completion"]), **row["columns"])
        if found != pytest.approx(row["score"], abs=1e-9) if found is not None else row["score"] is not None:
            wrong.append(f"row {number} ({row['why']}): {found}, expected {row['score']}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_rows_of(path: Path) -> None:
    found = rows(path)
    assert len(found) >= 40, f"{len(found)} answers are few; write at least 40"
    assert len({json.dumps(row["score"]) for row in found}) > 1, "answers of a single score show nothing"
    assert all(row["why"] for row in found)
    assert any(row["completion"] == "" for row in found)
    assert any(isinstance(row["completion"], dict) for row in found), "a text of a megabyte is missing"


def test_every_reward_has_answers() -> None:
    assert {path.stem for path in GOLDEN} == set(REWARDS)
