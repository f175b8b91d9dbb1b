"""A model with its optimiser: one step per batch, the same whatever the micro-batch."""

import math
from typing import ClassVar

import torch

from dare.batch import Batch
from dare.diffusion.likelihood import Scores, score_views
from dare.engines.accumulate import backward
from dare.engines.base import Objective
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.optimizer import make_optimizer, set_rate
from dare.errors import DareError
from dare.meter import Meter
from dare.models.base import Scorer
from dare.models.transformer import Transformer
from dare.models.value import ValueModel
from dare.types import Sequences, Views


class Learner:
    """``updates`` steps taken of ``total_updates``, ``skipped`` left out since the last one."""

    rate_setting: ClassVar[str] = "optim.lr"

    def __init__(self, model: Transformer | ValueModel, optim: OptimConfig, config: EngineConfig, total_updates: int):
        self.model, self.optim, self.config, self.total_updates = model, optim, config, total_updates
        self.spec = model.spec
        self.trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = make_optimizer(self.trained, optim)
        self.updates = 0
        self.skipped = 0

    def update(self, batch: Batch, objective: Objective) -> Meter:
        """See ``Engine.update``; a loss or gradient that is not finite leaves the weights as they were."""
        meter = Meter()
        units = objective.units(batch)
        finite = units > 0
        for micro in batch.split(self.config.micro_batch, self.config.micro_tokens) if finite else ():
            loss, metrics = backward(self.model, micro, objective, units)
            finite = finite and math.isfinite(loss)
            meter.update(metrics)
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.optim.max_grad_norm)
        if finite and math.isfinite(float(norm)):
            self._step()
            meter.add("grad_norm", float(norm))
        else:
            self._skip()
            meter = Meter()
        self.optimizer.zero_grad(set_to_none=True)
        meter.add("skipped_updates", float(self.skipped > 0))
        return meter

    def lr(self) -> float:
        """Learning rate of the next update: a function of the number of updates alone."""
        warm = min(1.0, (self.updates + 1) / (self.optim.warmup + 1))
        if self.optim.schedule == "constant":
            return self.optim.lr * warm
        progress = min(1.0, self.updates / max(1, self.total_updates))
        return self.optim.lr * warm * 0.5 * (1 + math.cos(math.pi * progress))

    @property
    def counters(self) -> dict[str, int]:
        """What a checkpoint keeps of it besides weights and moments."""
        return {"updates": self.updates, "skipped": self.skipped}

    @counters.setter
    def counters(self, kept: dict[str, int]) -> None:
        self.updates, self.skipped = kept["updates"], kept["skipped"]

    def _step(self) -> None:
        set_rate(self.optimizer, self.lr())
        self.optimizer.step()
        self.updates += 1
        self.skipped = 0

    def _skip(self) -> None:
        self.skipped += 1
        if self.skipped >= self.optim.max_skipped:
            raise DareError(
                f"{self.skipped} updates in a row had a loss or gradient that is not finite; the last checkpoint is "
                f"intact: lower {self.rate_setting} (now {self.optim.lr}) or look for broken rows"
            )


def score_rows(model: Scorer, seqs: Sequences, views: Views, rows: int) -> Scores:
    """Score ``rows`` rows at a time, without a graph."""
    scores = [
        score_views(model, seqs.select(part), views.select(part))
        for part in (slice(start, start + rows) for start in range(0, len(seqs.ids_BT), rows))
    ]
    return Scores(torch.cat([one.logp_BKT for one in scores]), torch.cat([one.entropy_BKT for one in scores]))
