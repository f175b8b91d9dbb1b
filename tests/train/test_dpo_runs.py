"""``dare dpo`` learns pairs within seconds, resumes bit for bit and scores the reference once."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_resume import assert_resume_changes_nothing

from dare.config import load_config
from dare.train.config import DPORunConfig
from dare.train.dpo import make_batch, train_dpo
from dare.train.reference import ReferenceScores
from dare.train.run import Run, load_model, open_run

SMALL = ["decoding.max_new_tokens=6", "optim.lr=1e-3", "dpo.draws=2", "train.batch=4"]


@pytest.fixture
def layers(tmp_path: Path) -> list[str]:
    """Digits up to 4 are chosen over the others, whatever the prompt says."""
    rng, path = random.Random(0), tmp_path / "rows.jsonl"
    texts = [["".join(rng.choices(digits, k=4)) for digits in ("abcdef", "1234", "5678")] for _ in range(200)]
    path.write_text(
        "\n".join(json.dumps(dict(zip(("prompt", "chosen", "rejected"), row, strict=True))) for row in texts)
    )
    return [f"task={{root: {tmp_path}, train: {path.name}}}", *SMALL]


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def mean(folder: Path, name: str, steps: slice) -> float:
    values = [line[name] for line in lines(folder)[steps]]
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_unseen_pairs_are_told_apart(tmp_path: Path, layers: list[str], model: str, seed: int) -> None:
    """Every pair is met once, so a step's metrics are those of unseen pairs."""
    more = [f"output={tmp_path / 'run'}", f"model.path={model}", f"train.seed={seed}", "train.steps=14"]
    folder = train_dpo(load_config(DPORunConfig, [*layers, *more]))
    assert lines(folder)[0]["margin"] == pytest.approx(0, abs=1e-3)
    assert mean(folder, "accuracy", slice(-4, None)) > 0.9
    assert mean(folder, "margin", slice(-4, None)) > 10
    assert mean(folder, "loss", slice(-4, None)) < 0.3 < lines(folder)[0]["loss"]


@pytest.mark.parametrize("setting", ["dpo.antithetic=false", "dpo={loss: ipo, beta: 0.05, draws: 2}"])
def test_other_choices_learn_too(tmp_path: Path, layers: list[str], setting: str) -> None:
    folder = train_dpo(load_config(DPORunConfig, [*layers, f"output={tmp_path / 'run'}", "train.steps=14", setting]))
    assert mean(folder, "margin", slice(-4, None)) > 1


def test_simpo_keeps_no_reference(tmp_path: Path, layers: list[str]) -> None:
    simpo = "dpo={reference_free: true, length_norm: true, beta: 2, target_margin: 1, sft_weight: 0, draws: 2}"
    folder = train_dpo(load_config(DPORunConfig, [*layers, f"output={tmp_path / 'run'}", "train.steps=14", simpo]))
    assert not list(folder.glob("reference*"))
    assert mean(folder, "margin", slice(-4, None)) > 0.5


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_dpo_5_and_resume_5_equals_10(tmp_path: Path, layers: list[str], model: str) -> None:
    """Of 13 rows, so that it crosses epochs."""

    def run(name: str, *more: str) -> Path:
        small = ["task.train_count=13", f"model.path={model}", "dpo.antithetic=false"]
        return train_dpo(load_config(DPORunConfig, [*layers, *small, f"output={tmp_path / name}", *more]))

    assert_resume_changes_nothing(run, tmp_path)


def opened(layers: list[str], output: Path, *more: str) -> tuple[DPORunConfig, Run]:
    config = load_config(DPORunConfig, [*layers, f"output={output}", "train.steps=3", *more])
    return config, open_run(config, answers=False, pairs=True, reference=True)


def test_the_reference_is_scored_once_per_masks(tmp_path: Path, layers: list[str]) -> None:
    config, run = opened(layers, tmp_path / "a")
    rows = run.items.rows[:4]
    first = make_batch(config, run, rows, ReferenceScores(run.engine, tmp_path / "cache"))
    (path,) = (tmp_path / "cache").iterdir()
    kept = path.read_text()
    assert len(kept.split()) >= 8
    # another run, whose policy has moved on, reads and writes nothing
    config, run = opened(layers, tmp_path / "b")
    run.engine.model.embed.weight.data.mul_(2)
    cache = ReferenceScores(run.engine, tmp_path / "cache")
    again = make_batch(config, run, rows, cache)
    assert torch.equal(first.reference_BK, again.reference_BK) and path.read_text() == kept
    # a new epoch brings new masks
    later = make_batch(config, run, [replace(row, epoch=1) for row in rows], cache)
    assert not torch.equal(later.views.masked_BKT, again.views.masked_BKT)
    assert len(path.read_text().split()) > len(kept.split())
    assert list((tmp_path / "cache").iterdir()) == [path]


def test_a_half_written_entry_is_scored_again(tmp_path: Path, layers: list[str]) -> None:
    config, run = opened(layers, tmp_path / "a")
    rows = run.items.rows[:4]
    first = make_batch(config, run, rows, ReferenceScores(run.engine, tmp_path))
    (path,) = tmp_path.glob("reference_*")
    path.write_text(path.read_text()[:-30])
    for _ in range(2):
        cache = ReferenceScores(run.engine, tmp_path)
        assert torch.equal(first.reference_BK, make_batch(config, run, rows, cache).reference_BK)
    assert len(cache.known) == 8


def test_fixed_masks_return_in_every_epoch(tmp_path: Path, layers: list[str]) -> None:
    config, run = opened(layers, tmp_path / "a", "dpo.fresh_masks=false")
    rows = run.items.rows[:4]
    one, other = (make_batch(config, run, [replace(row, epoch=epoch) for row in rows], None) for epoch in (0, 1))
    assert torch.equal(one.views.masked_BKT, other.views.masked_BKT)


def test_another_model_has_entries_of_its_own(tmp_path: Path, layers: list[str]) -> None:
    engines = [opened(layers, tmp_path / str(seed), f"train.seed={seed}")[1].engine for seed in (0, 1)]
    paths = [ReferenceScores(engine, tmp_path).path for engine in engines]
    assert paths[0] != paths[1]


def test_an_adapter_is_left_out_of_the_reference(tmp_path: Path, layers: list[str]) -> None:
    pytest.importorskip("peft")
    config, run = opened(layers, tmp_path / "a", "model.lora.rank=4")
    plain_config, plain = opened(layers, tmp_path / "b")
    for weight in run.engine.trained:
        weight.data.add_(0.1)
    batches = [
        make_batch(c, r, r.items.rows[:4], ReferenceScores(r.engine, r.folder))
        for c, r in ((config, run), (plain_config, plain))
    ]
    assert torch.allclose(batches[0].reference_BK, batches[1].reference_BK, rtol=1e-5)


def test_the_checkpoint_is_a_model(tmp_path: Path, layers: list[str]) -> None:
    folder = train_dpo(load_config(DPORunConfig, [*layers, f"output={tmp_path / 'run'}", "train.steps=1"]))
    assert load_model(str(folder)).tokenizer is not None
