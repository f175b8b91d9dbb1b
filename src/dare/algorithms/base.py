"""An algorithm is a record of choices: which views, what unit, whose credit, which scalar function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from dare.algorithms.aggregate import Aggregate, unit_mean
from dare.algorithms.credit import CreditRule
from dare.algorithms.kl import KL
from dare.algorithms.losses import Clips, PolicyLoss, bounded_exp
from dare.algorithms.units import TOKEN, Unit
from dare.batch import Batch
from dare.diffusion.noise import key
from dare.diffusion.views import ViewSampler
from dare.meter import Meter
from dare.types import Rollouts, Views

ViewRule = Callable[[Rollouts, int], Views]
"""(rollouts, number of the inner update) -> views."""
Norm = Callable[[Tensor, Batch], Tensor]
"""(scores [B, ...], batch) -> what a log ratio and a divergence are divided by."""


def drawn(sampler: ViewSampler) -> ViewRule:
    """Views of the final text, with fresh noise for every inner update."""
    return lambda rollouts, inner: sampler(rollouts.seqs, key(rollouts.key_B, "views", inner))


@dataclass(frozen=True)
class Records:
    """What a rollout keeps beyond the text and the step map.

    ``predictions`` the whole text the model expected at every pass; ``tree`` children per node at each level: samples
    of a prompt share their noise, and so their states, down to the node where they part.
    """

    predictions: bool = False
    tree: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What makes one RL algorithm differ from another; the trainer and the engine know nothing else about it.

    ``norm`` divides log ratios and divergences (None: by one); ``clips`` tells which units the loss has clipped (a
    metric); ``behaviour`` False: the loss reads the score itself, no ratio; ``kl_to_behaviour``: the divergence is from
    the policy that made the rollouts, not from the starting model.
    """

    rows_together: ClassVar[int] = 1

    views: ViewRule
    credit: CreditRule
    loss: PolicyLoss
    clips: Clips
    kl: KL
    kl_coef: float = 0.0
    kl_in_reward: bool = False
    kl_to_behaviour: bool = False
    unit: Unit = TOKEN
    norm: Norm | None = None
    aggregate: Aggregate = unit_mean
    behaviour: bool = True
    records: Records = field(default_factory=Records)

    def units(self, batch: Batch) -> float:
        """Units of the batch that the summed loss is divided by."""
        return float(self.aggregate(self.unit.weight(batch), batch)[1].sum())

    def needs_values(self, batch: Batch) -> bool:
        """False where every ratio is one and nothing else is compared."""
        compared = self.kl_coef > 0 and not (self.kl_in_reward or self.kl_to_behaviour)
        return compared or not self.behaviour or batch.old_BKT is not None

    def __call__(self, logp_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss of a micro-batch, differentiable in ``logp_BKT``, and its metrics.

        Without ``old_BKT`` the behaviour policy is the live one: every ratio is one.
        """
        assert batch.advantage_BKT is not None, "the trainer assigns credit"
        unit, meter = self.unit, Meter()
        score, counted = unit.reduce(logp_BKT, batch.views), unit.counted(batch)
        old = unit.reduce(logp_BKT.detach() if batch.old_BKT is None else batch.old_BKT, batch.views)
        norm = torch.ones_like(score) if self.norm is None else self.norm(score, batch)
        advantage = unit.credit(batch.advantage_BKT).to(score.dtype)
        log_ratio = (score - old) / norm if self.behaviour else score
        loss = self.loss(log_ratio, advantage)
        if (difference := self._difference(score, old, batch)) is not None:
            kl = self.kl(difference) / norm
            loss = loss + self.kl_coef * kl
            meter.add("kl", kl, counted)
        meter.add("loss", loss, counted)
        if self.behaviour:
            meter.add("ratio", bounded_exp(log_ratio), counted)
            meter.add("clip_fraction", self.clips(log_ratio, advantage), counted)
        weight, _ = self.aggregate(unit.weight(batch), batch)
        # where, not *: an uncounted unit must not turn 0 * inf into NaN
        total = torch.where(counted, weight.to(loss.dtype) * loss, 0.0).sum()
        return total + self._imitation(logp_BKT, batch), meter

    def _difference(self, score: Tensor, old: Tensor, batch: Batch) -> Tensor | None:
        """What the divergence in the loss is estimated from."""
        if self.kl_coef == 0 or self.kl_in_reward:
            return None
        if self.kl_to_behaviour:
            return score - old
        assert batch.reference_BKT is not None, "the trainer scores the reference"
        return score - self.unit.reduce(batch.reference_BKT, batch.views)

    def _imitation(self, logp_BKT: Tensor, batch: Batch) -> Tensor | float:
        """A cross-entropy on chosen tokens beside the policy loss."""
        if batch.imitation_BKT is None:
            return 0.0
        return -(batch.imitation_BKT.to(logp_BKT.dtype) * logp_BKT).sum()
