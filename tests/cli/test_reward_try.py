"""``dare reward try`` as its users meet it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dare.cli import app
from dare.errors import DareError
from dare.rewards.registry import LEARNED, REWARDS
from dare.traces.trace import spelled

ROWS = [
    {"prompt": "1+1", "completion": "#### 2", "ground_truth": "2", "score": 1},
    {"prompt": "1+1", "completion": "#### \x1b[31m3", "ground_truth": "2", "score": 1.0},
    {"prompt": "1+2", "completion": "dunno", "ground_truth": "3", "score": 0},
    {"prompt": "1+2", "completion": None, "ground_truth": "3", "score": None},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["reward", *map(str, words)], catch_exceptions=True)
    if isinstance(found.exception, DareError):
        raise found.exception
    return found.exit_code, found.output


def test_scores_and_disagreements(file):
    status, text = run("try", "gsm8k", file)
    assert status == 1
    assert "4 rows, mean 0.250, 2 without an answer, 1 differ from 'score'" in text
    (line,) = [line for line in text.splitlines() if "≠" in line]
    assert line.split()[0] == "1" and "\x1b[31m3" not in line


def test_agreement_and_another_column_to_compare_with(file):
    assert run("try", "gsm8k", f"{file}[:1]")[0] == 0
    assert run("try", "contains", file, "ground_truth=u", "--completion", "completion", "--score", "score")[0] == 1


def test_rows_that_differ_are_printed_however_few_are_asked_for(file):
    lines = run("try", "gsm8k", file, "--show", 0)[1].splitlines()
    assert sum("####" in line for line in lines) == 1


def test_options_and_files_of_the_users_own(file, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def short(completion, *, longest=20, **_):\n    return {'score': len(completion) <= longest}\n")
    assert "mean 1.000" in run("try", f"{own}:short", file)[1]
    assert "mean 0.500" in run("try", f"{own}:short", file, "longest=5")[1]
    own.write_text("def short(completion, **_):\n    raise ValueError('never')\n")
    status, text = run("try", f"{own}:short", f"{file}[:1]")
    assert status == 1 and "1 failed" in text and "raised ValueError: never" in " ".join(text.split())


def test_saved_rollouts_bring_their_trajectory(tmp_path):
    own, path = tmp_path / "own.py", tmp_path / "rollouts.jsonl"
    own.write_text("def passes(completion, *, trajectory, ground_truth, **_):\n    return trajectory.passes\n")
    traces = [spelled("two words").model_copy(update={"expected": "x", "score": 2.0}), spelled("one")]
    path.write_text("".join(trace.model_dump_json() + "\n" for trace in traces))
    text = run("try", f"{own}:passes", path)[1]
    assert "mean 1.500" in text and "≠" not in text


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["gsm8", "FILE"], "did you mean 'gsm8k'"),
        (["gsm8k", "FILE", "longest"], "option 'longest': write NAME=VALUE"),
        (["gsm8k", "FILE", "--completion", "text"], "no column 'text'"),
        (["countdown", "FILE"], "needs 'numbers'"),
        (["gsm8k", "nowhere.jsonl"], "does not exist"),
        (["gsm8k", "FILE[4:]"], "has no rows"),
    ],
)
def test_mistakes(file, words, match):
    with pytest.raises(DareError, match=match):
        run("try", *[str(word).replace("FILE", str(file)) for word in words])


def test_list_names_every_reward():
    text = run("list")[1]
    assert all(f" {name} " in text for name in {**REWARDS, **LEARNED})
