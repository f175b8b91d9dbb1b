"""Learned rewards chosen in settings: trained on, and beside a verifier."""

import json
from pathlib import Path

import pytest
from judge_server import Reply, serving
from tiny_classifiers import asked, classifier

from dare.config import load_config
from dare.learned.process import pass_reward, spaced
from dare.learned.scalar import reward_model
from dare.traces.trace import spelled
from dare.train.config import RLConfig
from dare.train.rl import train_rl
from dare.types import Example
from graders import grade

RUN = [
    "task={train: sudoku_small, train_count: 8}",
    "decoding={max_new_tokens: 8, block_size: 8, steps: 4, temperature: 1.0}",
    "algorithm={name: coupled_grpo, group_size: 2, updates: 1, kl_coef: 0}",
    "train={batch: 2, steps: 2}",
]


def run(folder: Path, rewards: str) -> list[dict[str, float]]:
    train_rl(load_config(RLConfig, [*RUN, f"output={folder}", f"task.rewards={rewards}"]))
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["reward_model", "preference_model", "prefix_reward", "pass_reward"])
def test_a_run_learns_from_a_classifier(tmp_path: Path, name: str) -> None:
    path = classifier(tmp_path / "model", "llama")
    lines = run(tmp_path / "run", f"{{{name}: {{path: {path}, weight: 0.5}}, sudoku_plain: 1.0}}")
    for line in lines:
        weighted = 0.5 * line[f"reward/{name}"] + line["reward/sudoku_plain"]
        assert line["reward/mean"] == pytest.approx(weighted, abs=1e-5)
    assert all(line[f"reward/{name}/failed"] == 0.0 for line in lines)


def test_a_run_learns_from_a_judge(tmp_path: Path) -> None:
    with serving(lambda number, body: Reply(f"Score: {1 + number % 10}")) as seen:
        lines = run(tmp_path / "run", f"{{judge: {{url: '{seen.url}', model: any}}}}")
    assert {line["reward/judge/failed"] for line in lines} == {0.0}
    assert lines[-1]["reward/judge/calls"] == len(seen.bodies) > 0
    assert lines[-1]["reward/judge/tokens"] == 5 * len(seen.bodies)


def test_each_denoising_pass_is_scored_and_their_scores_are_reduced(tmp_path: Path) -> None:
    path = classifier(tmp_path, "llama")
    texts, chat = ["one", "one two", "one two three"], asked("count")
    scores = reward_model(path, sigmoid=True)(texts, prompt=[chat] * 3)
    trace, columns = spelled(texts[-1]), {"prompt": [chat, chat], "trajectory": [spelled(texts[-1]), None]}
    assert trace.texts() == texts
    for reduce, expected in (("last", scores[-1]), ("min", min(scores)), ("mean", sum(scores) / 3)):
        assert pass_reward(path, reduce=reduce)(texts[-1:] * 2, **columns) == [pytest.approx(expected, abs=1e-6), None]


def test_evenly_spaced_passes_end_with_the_last() -> None:
    assert spaced([*"abcdefg"], 3) == ["a", "d", "g"] and spaced([*"abcdefgh"], 3) == ["b", "e", "h"]
    assert spaced([*"ab"], 3) == ["a", "b"] and spaced([], 3) == []


def test_a_form_and_a_model_leave_it_to_the_verifier_what_is_correct(tmp_path: Path) -> None:
    path = classifier(tmp_path, "llama")
    row = Example(tuple(asked("1+1")), {"ground_truth": "2"})
    found = grade(["#### 2", "#### 3"], [row] * 2, {"gsm8k": 1.0, "reward_model": {"path": path, "weight": 0.1}})
    assert [one.correct for one in found] == [True, False]
