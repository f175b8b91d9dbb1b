"""An algorithm is a record of choices: which views, what unit, whose credit, which scalar function."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dare.algorithms.advantage import Advantage
from dare.algorithms.kl import KL
from dare.algorithms.losses import Aggregate, PolicyLoss, bounded_exp, token_mean
from dare.batch import Batch
from dare.config import Config
from dare.diffusion.likelihood import token_sum
from dare.diffusion.views import ViewSampler
from dare.meter import Meter
from dare.types import Views

Reduce = Callable[[Tensor, Views], Tensor]


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What makes one RL algorithm differ from another; the trainer and the engine know nothing else about it.

    ``reduce`` turns ``logp_BKT`` into one score per unit; ``clips`` tells which units the loss has clipped (a metric).
    """

    views: ViewSampler
    advantage: Advantage
    loss: PolicyLoss
    clips: Callable[[Tensor, Tensor], Tensor]
    reduce: Reduce = token_sum
    kl: KL
    kl_coef: float = 0.0
    aggregate: Aggregate = token_mean

    def units(self, batch: Batch) -> float:
        """Units of the batch that the summed loss is divided by."""
        return float(self.aggregate(batch.counted_BT)[1].sum())

    def __call__(self, logp_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss of a micro-batch, differentiable in ``logp_BKT``, and its metrics."""
        assert batch.old_BKT is not None and batch.advantage_B is not None, "the RL trainer fills both"
        score_BU, old_BU = self.reduce(logp_BKT, batch.views), self.reduce(batch.old_BKT, batch.views)
        log_ratio_BU, advantage_BU = score_BU - old_BU, batch.advantage_B[:, None].to(score_BU.dtype)
        loss_BU = self.loss(log_ratio_BU, advantage_BU)
        meter = Meter()
        if batch.reference_BKT is not None:
            kl_BU = self.kl(score_BU - self.reduce(batch.reference_BKT, batch.views))
            loss_BU = loss_BU + self.kl_coef * kl_BU
            meter.add("kl", kl_BU, batch.counted_BT)
        meter.add("loss", loss_BU, batch.counted_BT)
        meter.add("ratio", bounded_exp(log_ratio_BU), batch.counted_BT)
        meter.add("clip_fraction", self.clips(log_ratio_BU, advantage_BU), batch.counted_BT)
        weight_BU, _ = self.aggregate(batch.counted_BT)
        # where, not *: an uncounted unit must not turn 0 * inf into NaN
        return torch.where(batch.counted_BT, weight_BU * loss_BU, 0.0).sum(), meter


class AlgorithmConfig(Config):
    """Settings every algorithm has; a subclass adds its own, with the paper's setting as defaults.

    ``group_size`` responses per prompt; ``updates`` optimiser steps per batch of rollouts; ``kl_coef`` weight of the
    divergence from the starting model.
    """

    name: str
    group_size: int
    updates: int
    kl_coef: float

    def build(self) -> Algorithm:
        """Compose the algorithm."""
        raise NotImplementedError
