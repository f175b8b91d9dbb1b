"""Supervised fine-tuning."""

import time
from pathlib import Path

import torch
from torch import Tensor

from dare.algorithms.sft_config import AnswerViews
from dare.batch import Batch
from dare.data.source import Item, answer_sequences
from dare.diffusion.noise import key
from dare.models.base import ModelSpec
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.train.config import SFTConfig
from dare.train.log import RunLog
from dare.train.order import Orders, orders_on, recorded_orders
from dare.train.run import Run, open_run


def train_sft(config: SFTConfig) -> Path:
    """Train on answers and return the run folder."""
    run = open_run(config, answers=True)
    objective, spec = config.objective, run.engine.spec
    loss, views = objective.build(), objective.views(spec, plain_words(run.tokenizer, spec))
    recorded = objective.order == "trace"
    orders = recorded_orders(config.task, run.items.rows, spec.eos_ids) if recorded else None
    with RunLog(run.folder, "sft", run.start, config.train.steps, ("loss", "tokens_per_s")) as log:
        for step, rows in run.batches():
            began, lr = time.perf_counter(), run.engine.lr()
            batch = make_batch(config, run, rows, views, orders)
            meter = run.engine.update(batch, loss)
            seconds = time.perf_counter() - began
            tokens = int(batch.seqs.lengths_B.sum())
            log.write(step, {**meter.mean(), "lr": lr, "tokens_per_s": tokens / seconds})
    return run.folder


def make_batch(
    config: SFTConfig, run: Run, rows: list[Item], views: AnswerViews, orders: Orders | None = None
) -> Batch:
    """Pad rows, draw their noise by (seed, epoch, row) and mark what precedes the EOS padding."""
    spec, padding = run.engine.spec, config.padding_for(run.engine.spec.attention)
    seqs = answer_sequences(rows, spec, padding, config.decoding.max_new_tokens, config.decoding.block_for(spec))
    epoch_B, index_B = torch.tensor([[item.epoch, item.index] for item in rows]).unbind(1)
    key_B = key(config.train.seed, "sft", epoch_B, index_B)
    real_B = torch.tensor([len(item.prompt_ids) + len(item.answer_ids) + item.ends for item in rows])
    counted_BT = seqs.response_BT & (torch.arange(seqs.ids_BT.shape[1]) < real_B[:, None])
    step_BT = None if orders is None else orders_on(seqs, rows, orders)
    return Batch(seqs, views(seqs, key_B, step_BT), counted_BT).to(run.engine.config.device)


def plain_words(tokenizer: PreTrainedTokenizerBase, spec: ModelSpec) -> Tensor:
    """Ids of the tokens that are text: neither special nor added to the vocabulary."""
    special = {spec.mask_id, spec.pad_id, *spec.eos_ids, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return torch.tensor([token for token in range(min(spec.vocab_size, len(tokenizer))) if token not in special])
