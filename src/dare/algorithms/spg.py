"""SPG: a lower bound of the likelihood for good answers, an upper bound for bad ones (arXiv 2510.09541)."""

from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from dare.algorithms.base import Algorithm
from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.losses import reinforce
from dare.algorithms.units import Unit
from dare.batch import Batch
from dare.diffusion.likelihood import elbo, power_mean
from dare.diffusion.noise import key
from dare.diffusion.prefix import block_prefix
from dare.models.base import ModelSpec
from dare.types import Outcome, Views


class SPG(AlgorithmConfig):
    """Section 3 of the paper, without ratio or behaviour policy; KL has no place in it.

    ``draws`` corruptions, each of one block of ``block_size`` (block-causal models: their own) with a share between
    ``rate_low`` and ``rate_high`` masked, all behind it masked and ``prompt_rate`` of what precedes it. Rejected
    answers get ``mix`` of the upper bound and 1 - ``mix`` of the lower one; ``beta`` the upper bound's exponent.
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"kl_coef", "kl", "kl_in", "kl_to", "aggregate"})

    name: Literal["spg"] = "spg"
    group_size: PositiveInt = 6
    updates: PositiveInt = 4
    draws: PositiveInt = 2
    block_size: PositiveInt = 32
    rate_low: float = Field(0.0, ge=0, le=1)
    rate_high: float = Field(1.0, gt=0, le=1)
    prompt_rate: float = Field(0.15, ge=0, lt=1)
    beta: float = Field(1.5, ge=1)
    mix: float = Field(0.5, ge=0, le=1)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        sampler = partial(
            block_prefix,
            block_size=spec.block_size or self.block_size,
            from_prompt=spec.attention == "block_causal",
            rates=(self.rate_low, self.rate_high),
            prompt_rate=self.prompt_rate,
            count=self.draws,
        )

        def views(outcome: Outcome, inner: int) -> Views:
            rollouts = outcome.rollouts
            return sampler(rollouts.seqs, key(rollouts.key_B, "views", inner), counted_BT=rollouts.counted_BT)

        bounds = Unit(
            reduce=partial(sandwich, beta=self.beta, mix=self.mix),
            counted=lambda batch: batch.counted_BT.any(1, keepdim=True),
            credit=lambda advantage_BKT: advantage_BKT[:, 0, :1],
            weight=_length,
        )
        return self.compose(views=views, unit=bounds, loss=by_sign, behaviour=False)


def sandwich(logp_BKT: Tensor, views: Views, *, beta: float, mix: float) -> Tensor:
    """Both bounds per token, ``[B, 2]``: the ELBO, and ``mix`` of the EUBO with 1 - ``mix`` of the ELBO.

    EUBO: mean over tokens of log(mean over views of p^beta / t) / beta, a view that does not score a token adding 0
    (equations 5 and 7 of the paper, up to a constant).
    """
    lower_B, scored_BKT = elbo(logp_BKT, views), views.scored_BKT
    share_BKT = torch.where(scored_BKT, 1 / views.rate_BKT, 0.0) / scored_BKT.shape[1]
    upper_B = power_mean(logp_BKT, share_BKT, beta).sum(1) / scored_BKT.any(1).sum(1).clamp_min(1)
    return torch.stack([lower_B, mix * upper_B + (1 - mix) * lower_B], 1)


def by_sign(bounds_B2: Tensor, advantage_B1: Tensor) -> Tensor:
    """Raise the lower bound of answers with a positive advantage, lower the other bound of the rest."""
    return reinforce(torch.where(advantage_B1 > 0, bounds_B2[:, :1], bounds_B2[:, 1:]), advantage_B1)


def _length(batch: Batch) -> Tensor:
    return batch.counted_BT.sum(1, keepdim=True).to(batch.views.weight_BKT.dtype)
