"""An algorithm is a record of choices: which views, what unit, whose credit, which scalar function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dare.algorithms.advantage import Credit
from dare.algorithms.aggregate import Aggregate, unit_mean
from dare.algorithms.kl import KL
from dare.algorithms.losses import Clips, PolicyLoss, bounded_exp
from dare.algorithms.units import TOKEN, Norm, Unit
from dare.algorithms.value import Value
from dare.batch import Batch
from dare.diffusion.noise import key
from dare.diffusion.views import ViewSampler
from dare.meter import Meter
from dare.types import Outcome, Views

ViewRule = Callable[[Outcome, int], Views]
"""(graded rollouts, number of the inner update) -> views."""


def drawn(sampler: ViewSampler) -> ViewRule:
    """Views of the final text, with fresh noise for every inner update."""
    return lambda outcome, inner: sampler(outcome.rollouts.seqs, key(outcome.rollouts.key_B, "views", inner))


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What makes one RL algorithm differ from another; the trainer and the engine know nothing else about it.

    ``norm`` divides log ratios and divergences (None: by one); ``clips`` tells which units the loss has clipped (a
    metric); ``behaviour`` False: the loss reads the score itself, no ratio. ``kl_to_behaviour`` measures the divergence
    in the loss from the policy that made the rollouts instead of the starting one; ``kl_scale`` is the weight of a
    unit's divergence relative to its loss (None: one). ``value`` what a value model learns, where one assigns credit.
    ``fresh_views`` False: every inner update has the same views, which then are scored once.
    """

    views: ViewRule
    credit: Credit
    loss: PolicyLoss
    clips: Clips
    kl: KL
    kl_coef: float = 0.0
    kl_in_reward: bool = False
    kl_to_behaviour: bool = False
    unit: Unit = TOKEN
    norm: Norm | None = None
    kl_scale: Norm | None = None
    value: Value | None = None
    aggregate: Aggregate = unit_mean
    behaviour: bool = True
    fresh_views: bool = True
    reads_entropy: ClassVar[bool] = False

    @property
    def kl_in_loss(self) -> bool:
        """Whether the loss compares the policy with the starting one."""
        return self.kl_coef > 0 and not self.kl_in_reward and not self.kl_to_behaviour

    def units(self, batch: Batch) -> float:
        """Units of the batch that the summed loss is divided by."""
        return float(self.aggregate(self.unit.weight(batch), batch)[1].sum())

    def needs_values(self, batch: Batch) -> bool:
        """False where every ratio is one and nothing else is compared or logged."""
        compares = self.kl_in_loss or not self.behaviour or batch.old_BKT is not None
        return compares or batch.views.imitation_BKT is not None

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
        if (anchor := self._anchor(batch, old)) is not None:
            kl = self.kl(score - anchor) / norm
            meter.add("kl", kl, counted)
            loss = loss + self.kl_coef * (kl if self.kl_scale is None else kl * self.kl_scale(score, batch))
        meter.add("loss", loss, counted)
        if self.behaviour:
            meter.add("ratio", bounded_exp(log_ratio), counted)
            meter.add("clip_fraction", self.clips(log_ratio, advantage), counted)
        weight, _ = self.aggregate(unit.weight(batch), batch)
        # where, not *: an uncounted unit must not turn 0 * inf into NaN
        total = torch.where(counted, weight.to(loss.dtype) * loss, 0.0).sum()
        return total - _imitated(logp_BKT, batch.views, meter), meter

    def _anchor(self, batch: Batch, old: Tensor) -> Tensor | None:
        """Scores of the policy that the loss keeps close to."""
        if self.kl_coef > 0 and self.kl_to_behaviour:
            return old
        if not self.kl_in_loss:
            return None
        assert batch.reference_BKT is not None, "the trainer scores the reference"
        return self.unit.reduce(batch.reference_BKT, batch.views)


def _imitated(logp_BKT: Tensor, views: Views, meter: Meter) -> Tensor | float:
    """Weighted log-likelihood of the tokens to imitate, summed."""
    if views.imitation_BKT is None:
        return 0.0
    weight_BKT = views.imitation_BKT.to(logp_BKT.dtype)
    meter.add_ratio("imitation", -float((weight_BKT * logp_BKT.detach()).sum()), float(weight_BKT.sum()))
    return (weight_BKT * logp_BKT).sum()
