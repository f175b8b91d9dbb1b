"""Rewards of the user's own in real runs: counted, handled by policy, and left out without a trace."""

import json
from pathlib import Path

import pytest

from dare.config import load_config
from dare.data.config import TaskConfig
from dare.data.source import load_examples
from dare.errors import DareError
from dare.evaluation.config import EvalConfig
from dare.evaluation.evaluate import evaluate
from dare.grading.grade import Grade, kept, sound
from dare.train.config import RLConfig
from dare.train.rl import train_rl
from dare.train.run import load_model

DECODING = "decoding={max_new_tokens: 8, block_size: 8, steps: 4, temperature: 1.0}"
RUN = [
    "model.path=tiny:masked",
    "algorithm={name: coupled_grpo, group_size: 2, updates: 1, kl_coef: 0}",
    "train={batch: 8, steps: 1}",
    "guard={eval_every: 1, eval_count: 8}",
]
PICKY = """
def picky(completion, *, row, trajectory, **_):
    if row % 4 == 3:
        raise ValueError("no fourth rows")
    return {"ones": completion.count("1") / 8, "passes": trajectory.passes / 100}
"""


def task(folder: Path, policy: str) -> list[str]:
    """Eight prompts without a ground truth, and a reward that fails over two of them."""
    folder.mkdir(exist_ok=True)
    (folder / "picky.py").write_text(PICKY)
    examples = load_examples(TaskConfig(train="sudoku_small", train_count=8), "train")
    rows = [{"prompt": [dict(turn) for turn in example.prompt]} for example in examples]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        DECODING,
        f"task={{train: {folder}/rows.jsonl, test: {folder}/rows.jsonl, test_count: 8}}",
        f"task.rewards={{picky: {{name: '{folder}/picky.py:picky'}}}}",
        f"task.grading.on_failure={policy}",
    ]


def run(folder: Path, policy: str) -> list[dict[str, float]]:
    train_rl(load_config(RLConfig, [*task(folder, policy), *RUN, f"output={folder / 'run'}"]))
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def test_zero_counts_and_drop_leaves_whole_groups_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before, zero), (first, drop) = run(tmp_path / "zero", "zero"), run(tmp_path / "drop", "drop")
    assert zero["reward/picky/failed"] == drop["reward/picky/failed"] == 0.25
    assert zero["time/reward/picky"] > 0
    assert drop["reward/mean"] == pytest.approx(zero["reward/mean"] / 0.75)
    assert drop["reward/picky/passes"] == pytest.approx(0.04)
    assert first["eval/reward"] == pytest.approx(before["eval/reward"] / 0.75)
    assert capsys.readouterr().err.count("raised ValueError: no fourth rows (picky.py line 4)") == 2


def test_fail_ends_the_run_and_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(DareError, match=r"failed on row 3, completion .*no fourth rows.*set task.grading.on_failure"):
        run(tmp_path, "fail")


@pytest.mark.parametrize(("policy", "count"), [("zero", 8), ("drop", 6)])
def test_an_evaluation_tells_failures(tmp_path: Path, policy: str, count: int) -> None:
    result, _ = evaluate(load_model("tiny:masked"), load_config(EvalConfig, [*task(tmp_path, policy), "name=picky"]))
    assert (result.count, result.reward_failures) == (count, 2)


def test_a_group_with_a_dropped_answer_is_no_group() -> None:
    good, bad = Grade(1.0, {}, True, True), Grade(0.0, {}, False, False, failed=True, dropped=True)
    assert sound([good, good, bad, good], [0, 0, 1, 1]) == [True, True, False, False]
    assert kept([good, bad]) == [good]
    with pytest.raises(DareError, match="failed over every answer"):
        kept([bad])
