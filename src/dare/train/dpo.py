"""Preference optimisation: pairs of answers, no rollouts."""

import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from dare.batch import Batch
from dare.data.source import Item, answer_sequences
from dare.diffusion.noise import key
from dare.train.config import DPORunConfig
from dare.train.log import RunLog
from dare.train.reference import ReferenceScores
from dare.train.run import Run, open_run


def train_dpo(config: DPORunConfig) -> Path:
    """Make chosen answers more probable than rejected ones and return the run folder."""
    anchored = not config.dpo.reference_free
    run = open_run(config, answers=False, pairs=True, reference=anchored)
    objective = config.dpo.build()
    reference = ReferenceScores(run.engine, config.reference_cache or run.folder) if anchored else None
    with RunLog(run.folder, "dpo", run.start, config.train.steps, ("loss", "accuracy", "margin")) as log:
        for step, rows in run.batches():
            began, lr = time.perf_counter(), run.engine.lr()
            batch = make_batch(config, run, rows, reference)
            meter = run.engine.update(batch, objective)
            tokens, seconds = int(batch.seqs.lengths_B.sum()), time.perf_counter() - began
            log.write(step, {**meter.mean(), "lr": lr, "tokens_per_s": tokens / seconds})
    return run.folder


def make_batch(config: DPORunConfig, run: Run, rows: list[Item], reference: ReferenceScores | None) -> Batch:
    """Lay out chosen and rejected answers in turn, draw their masks and look up what the reference says of them."""
    spec, sampler = run.engine.spec, config.dpo.sampler(run.engine.spec)
    seqs = answer_sequences(
        _in_turn(rows), spec, config.eos_padding, config.decoding.max_new_tokens, config.decoding.block_for(spec)
    )
    key_B = pair_keys(config, rows)
    batch = Batch(seqs, sampler(seqs, key_B), seqs.response_BT, together=2).to(run.engine.config.device)
    if reference is None:
        return batch
    if config.dpo.antithetic:
        return replace(batch, reference_BK=reference(batch.seqs, batch.views))
    own = sampler(seqs, key(key_B, "reference")).to(run.engine.config.device)
    return replace(batch, reference_BK=reference(batch.seqs, own))


def pair_keys(config: DPORunConfig, rows: list[Item]) -> Tensor:
    """Noise keys of both answers of each row, a function of (seed, epoch, row, side)."""
    epoch_P = torch.tensor([item.epoch if config.dpo.fresh_masks else 0 for item in rows])
    index_P = torch.tensor([item.index for item in rows])
    return key(config.train.seed, "dpo", epoch_P[:, None], index_P[:, None], torch.arange(2)).flatten()


def _in_turn(rows: list[Item]) -> list[Item]:
    """Each row's chosen answer, then its rejected one."""
    return [item for row in rows for item in (row, replace(row, answer_ids=row.rejected_ids))]
