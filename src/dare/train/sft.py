"""Supervised fine-tuning."""

import time
from functools import partial
from pathlib import Path

import torch

from dare.algorithms.sft import NegativeElbo
from dare.batch import Batch
from dare.data.source import Item, answer_sequences
from dare.diffusion.noise import key
from dare.diffusion.views import ViewSampler, block_rate, random_rate
from dare.models.base import ModelSpec
from dare.train.config import SFTConfig
from dare.train.log import RunLog
from dare.train.run import Run, open_run


def train_sft(config: SFTConfig) -> Path:
    """Train on answers and return the run folder."""
    run = open_run(config, answers=True)
    objective, views = NegativeElbo(), sft_views(run.engine.spec)
    with RunLog(run.folder, "sft", run.start, config.train.steps, ("loss", "tokens_per_s")) as log:
        for step, rows in run.batches():
            began, lr = time.perf_counter(), run.engine.lr()
            batch = make_batch(config, run, rows, step, views)
            meter = run.engine.update(batch, objective)
            seconds = time.perf_counter() - began
            tokens = int(batch.seqs.lengths_B.sum())
            log.write(step, {**meter.mean(), "lr": lr, "tokens_per_s": tokens / seconds})
    return run.folder


def make_batch(config: SFTConfig, run: Run, rows: list[Item], step: int, views: ViewSampler) -> Batch:
    """Pad rows, draw their noise by (seed, step, row) and mark what precedes the EOS padding."""
    spec = run.engine.spec
    seqs = answer_sequences(
        rows, spec, config.eos_padding, config.decoding.max_new_tokens, config.decoding.block_for(spec)
    )
    key_B = key(config.train.seed, "sft", step, torch.tensor([item.index for item in rows]))
    real_B = torch.tensor([len(item.prompt_ids) + len(item.answer_ids) + 1 for item in rows])
    counted_BT = seqs.response_BT & (torch.arange(seqs.ids_BT.shape[1]) < real_B[:, None])
    return Batch(seqs, views(seqs, key_B), counted_BT).to(run.engine.config.device)


def sft_views(spec: ModelSpec) -> ViewSampler:
    """The corruption the family was defined with: one rate per sequence, or one per block."""
    return random_rate if spec.block_size is None else partial(block_rate, block_size=spec.block_size)
