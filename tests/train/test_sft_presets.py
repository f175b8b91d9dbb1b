"""Every layer of configs/sft on both embedded models, the order of recorded answers, and what the noise depends on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dare.config import load_config
from dare.data.source import Item, load_items
from dare.errors import DareError
from dare.traces.files import ROLLOUTS, write_traces
from dare.traces.record import trace
from dare.train.config import SFTConfig
from dare.train.order import orders_on, recorded_orders
from dare.train.run import load_model, open_run
from dare.train.sft import make_batch, plain_words, train_sft
from dare.types import pack
from rows import text_rollouts

ROOT = Path(__file__).parents[2]
PRESETS = sorted(path.stem for path in (ROOT / "configs" / "sft").glob("*.yaml"))
MODELS = {"full": "tiny:masked", "block_causal": "tiny:block"}
REFUSED = {("dream_cart", "block_causal"): "weight=elbo", ("bd3lm", "full"): "rate_per=row"}
TASK = ["task={train: sudoku_small, train_count: 6}", "decoding={max_new_tokens: 17, steps: 2}"]


def settings(name: str, kind: str, folder: Path) -> list[str]:
    layers = [*TASK, str(ROOT / "configs" / "sft" / f"{name}.yaml"), f"model.path={MODELS[kind]}"]
    if name == "trace":
        record(folder, MODELS[kind])
        layers += [f"task={{root: {folder}, train: {ROLLOUTS}}}"]
    return [*layers, "train={steps: 2, batch: 4}", f"output={folder / 'run'}"]


def record(folder: Path, model: str, **changes) -> list[list[int]]:
    """Write the answers of the task as if they had been decoded in a known order; return that order."""
    checkpoint = load_model(model)
    config = load_config(SFTConfig, [*TASK, "output=none"])
    items = load_items(config.task, "train", checkpoint.tokenizer, checkpoint.model.spec, 17, answers=True).rows
    eos = checkpoint.model.spec.eos_ids[0]
    rows = [[*item.prompt_ids, *item.answer_ids, eos] for item in items]
    seqs = pack(rows, [len(item.prompt_ids) for item in items], checkpoint.model.spec.pad_id)
    order_BT = torch.where(seqs.response_BT, torch.arange(seqs.ids_BT.shape[1]) * 7 % 5, -1)
    rollouts = replace(text_rollouts(seqs), unmask_step_BT=order_BT, forwards_B=order_BT.amax(1) + 1)
    write_traces(
        folder / ROLLOUTS,
        [
            trace(rollouts, row, checkpoint.tokenizer).model_copy(
                update={
                    "prompt": item.example.prompt[-1]["content"],
                    "completion": item.example.answer,
                    "score": row / 2,
                    **changes,
                }
            )
            for row, item in enumerate(items)
        ],
    )
    return [order_T[open_T].tolist() for order_T, open_T in zip(order_BT, seqs.response_BT, strict=True)]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", PRESETS)
def test_two_steps_of_every_preset(name, kind, tmp_path):
    layers = settings(name, kind, tmp_path)
    if fix := REFUSED.get((name, kind)):
        with pytest.raises(DareError, match=fix):
            load_config(SFTConfig, layers)
        return
    folder = train_sft(load_config(SFTConfig, layers))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert all(line["loss"] > 0 and line["grad_norm"] > 0 and not line["skipped_updates"] for line in lines)


@pytest.mark.parametrize("kind", MODELS)
def test_views_follow_the_recorded_order(kind, tmp_path):
    config = load_config(SFTConfig, settings("trace", kind, tmp_path))
    expected = record(tmp_path, MODELS[kind])
    run = open_run(config, answers=True)
    spec, rows = run.engine.spec, run.items.rows
    orders = recorded_orders(config.task, rows, spec.eos_ids)
    assert [orders[row.index] for row in rows] == expected
    views = config.objective.views(spec, plain_words(run.tokenizer, spec))
    batch = make_batch(config, run, rows, views, orders)
    step_BT, scored_BT = orders_on(batch.seqs, rows, orders), batch.views.scored_BKT[:, 0]
    size = spec.block_size or step_BT.shape[1]
    for row in range(len(rows)):
        for start in range(0, step_BT.shape[1], size):
            block = slice(start, start + size)
            steps_T, now_T = step_BT[row, block], scored_BT[row, block]
            if not now_T.any():
                assert (steps_T < 0).all()
                continue
            step = int(steps_T[now_T][0])
            answer_T = batch.seqs.response_BT[row, block]
            assert torch.equal(now_T, steps_T == step)
            late_T = answer_T & ((steps_T >= step) | (steps_T < 0))
            assert torch.equal(batch.views.masked_BKT[row, 0, block], late_T)


def test_answers_keep_the_tokens_they_were_decoded_in(tmp_path):
    layers = settings("trace", "full", tmp_path)
    expected = open_run(load_config(SFTConfig, layers), answers=True).items.rows
    record(tmp_path, "tiny:masked", completion="another text")
    found = open_run(load_config(SFTConfig, [*layers, f"output={tmp_path / 'other'}"]), answers=True).items.rows
    assert [row.answer_ids for row in found] == [row.answer_ids for row in expected]


def test_rows_below_the_lowest_score_are_left_out(tmp_path):
    layers = [*settings("trace", "full", tmp_path), "task.min_score=1"]
    items = open_run(load_config(SFTConfig, layers), answers=True).items
    assert [row.example.columns["row"] for row in items.rows] == [2, 3, 4, 5] and items.dropped == 2
    record(tmp_path, "tiny:masked", score=None)
    with pytest.raises(DareError, match=r"task.min_score: row 0 has no number as score"):
        open_run(load_config(SFTConfig, [*layers, f"output={tmp_path / 'other'}"]), answers=True)


def test_a_row_without_its_record_is_refused(tmp_path):
    layers = settings("trace", "full", tmp_path)
    record(tmp_path, "tiny:masked", decoded_ids=())
    with pytest.raises(DareError, match=r"rollouts.jsonl row 0: no decoded_ids"):
        train_sft(load_config(SFTConfig, layers))
    with pytest.raises(DareError, match=r"has no record; give the rollouts.jsonl"):
        load_config(SFTConfig, [*TASK, "objective.order=trace", "output=none"])


def batch_of(run, config: SFTConfig, rows: list[Item]):
    views = config.objective.views(run.engine.spec, plain_words(run.tokenizer, run.engine.spec))
    return make_batch(config, run, rows, views)


def test_noise_is_a_function_of_seed_epoch_and_row(tmp_path):
    def drawn(name: str, *more: str) -> list[dict[tuple[int, int], list[float]]]:
        """Mask rates of each (epoch, row), step by step."""
        config = load_config(SFTConfig, [*TASK, "train.steps=6", *more, f"output={tmp_path / name}"])
        run = open_run(config, answers=True)
        steps = [(rows, batch_of(run, config, rows).views.rate_BKT.tolist()) for _, rows in run.batches()]
        return [{(row.epoch, row.index): own for row, own in zip(rows, rates, strict=True)} for rows, rates in steps]

    large, small = drawn("large", "train.batch=6"), drawn("small", "train.batch=4")
    whole = {key: rates for step in large for key, rates in step.items()}
    assert len(whole) == 36  # six epochs of six rows
    assert all(whole[key] == rates for step in small for key, rates in step.items())
    assert sum(len(step) for step in small) == 24 and {epoch for epoch, _ in small[1]} == {0, 1}
    assert len({str(rates) for rates in whole.values()}) == 36
    assert drawn("seed", "train={batch: 6, seed: 1}")[0][0, 0] != whole[0, 0]


@pytest.mark.parametrize(
    ("kind", "padding", "length"),
    [("full", "auto", 30), ("block_causal", "auto", None), ("full", "none", 17), ("block_causal", "to_length", 30)],
)
def test_eos_goes_on_as_far_as_the_decoder_reads(kind, padding, length, tmp_path):
    more = ["decoding.max_new_tokens=30", f"model.path={MODELS[kind]}", f"eos_padding={padding}"]
    config = load_config(SFTConfig, [*TASK, *more, f"output={tmp_path / 'run'}"])
    run = open_run(config, answers=True)
    batch = batch_of(run, config, run.items.rows[:2])
    if length is None:  # to the end of the block of 8 that holds the first EOS, counted from the prompt's first token
        assert (batch.seqs.lengths_B % 8 == 0).all() and (batch.counted_BT.sum(1) == 17).all()
    else:
        assert batch.seqs.response_BT.sum(1).tolist() == [length, length]


def test_random_words_are_text(tmp_path):
    checkpoint = load_model("tiny:masked")
    spec, words = checkpoint.model.spec, set(plain_words(checkpoint.tokenizer, checkpoint.model.spec).tolist())
    assert not words & {spec.mask_id, spec.pad_id, *spec.eos_ids, *checkpoint.tokenizer.all_special_ids}
    assert len(words) >= 256 and max(words) < spec.vocab_size
