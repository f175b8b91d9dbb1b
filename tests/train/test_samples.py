"""The rollouts that an RL run keeps."""

import json
from pathlib import Path

from dare.config import load_config
from dare.traces.files import read_traces
from dare.train.config import RLConfig
from dare.train.folder import checkpoints
from dare.train.rl import train_rl

SMALL = [
    "task={train: sudoku_small, train_count: 8}",
    "decoding={max_new_tokens: 17, steps: 4, temperature: 1.0}",
    "algorithm={name: d1, group_size: 2, updates: 1}",
]


def run(output: Path, *layers: str, steps: int = 3) -> Path:
    train = f"train={{steps: {steps}, batch: 2, save_every: 1, keep: 9}}"
    return train_rl(load_config(RLConfig, [f"output={output}", *SMALL, train, *layers]))


def test_every_step_keeps_a_few_answers_as_they_were_decoded(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "train.log_rollouts=3")
    rows = read_traces(folder)
    assert [row.step for row in rows] == [1] * 3 + [2] * 3 + [3] * 3
    assert rows[0].prompt == rows[1].prompt != rows[2].prompt, "both answers of a group, then the next prompt"
    means = [json.loads(line)["reward/mean"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row.passes == 4 and row.score is not None for row in rows) and len(means) == 3


def test_a_resumed_run_keeps_each_step_once(tmp_path: Path) -> None:
    whole = read_traces(run(tmp_path / "whole"))
    folder = run(tmp_path / "killed")
    for later in checkpoints(folder)[1:]:
        later.rename(tmp_path / later.name)
    assert read_traces(run(folder, "resume=true")) == whole


def test_none_and_a_long_run(tmp_path: Path) -> None:
    assert not (run(tmp_path / "none", "train.log_rollouts=0", steps=1) / "rollouts.jsonl").exists()
