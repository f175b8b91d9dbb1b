"""TraceRL and the random-masking and coupled baselines of its authors (dLLM-RL; arXiv 2509.06949)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from dare.algorithms.base import Algorithm, ViewRule
from dare.algorithms.config import BaselineName
from dare.algorithms.kl import k3
from dare.algorithms.losses import PolicyLoss
from dare.algorithms.steps import StepsConfig
from dare.algorithms.units import VIEW_TOKEN, canvas_length
from dare.algorithms.value import CriticConfig
from dare.batch import Batch
from dare.diffusion.noise import key, uniform
from dare.models.base import ModelSpec
from dare.types import Outcome, Rollouts, Views

FAR = 10.0
"""Log ratios beyond this count as this (block-causal models only, as in the authors' code)."""


class TraceRL(StepsConfig):
    """Section 4 of the paper: tokens scored in the states that decided them, close to the policy of the rollouts.

    ``method`` the states: those of the rollout ("trajectory"), ``draws`` at random with a share between ``rate_low``
    and ``rate_high`` of the tokens masked ("random_masking"), or those and their complements ("coupled"). ``shrink``
    None: 1 for block-causal models, 8 for masked ones. With ``critic`` the advantage of a token is that of its step
    over a value model's expectation (section 4.2), and ``baseline`` has no part in it.
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"aggregate", "ratio", "length_norm"})
    merged: ClassVar[Mapping[str, int]] = {"full": 8, "block_causal": 1}

    name: Literal["tracerl"] = "tracerl"
    group_size: PositiveInt = 16
    updates: PositiveInt = 1
    baseline: BaselineName = "z_score"
    kl_coef: float = Field(0.01, ge=0)
    kl_to: Literal["start", "behaviour"] = "behaviour"
    success_range: tuple[float, float] | None = (0.2, 0.8)
    truncated_is_wrong: bool = True
    method: Literal["trajectory", "random_masking", "coupled"] = "trajectory"
    draws: PositiveInt = 1
    rate_low: float = Field(0.1, ge=0, le=1)
    rate_high: float = Field(0.9, ge=0, le=1)
    critic: CriticConfig | None = None

    @model_validator(mode="after")
    def _values_steps(self) -> Self:
        if self.critic is not None and self.method != "trajectory":
            raise ValueError(f"critic values the steps of a rollout, method={self.method} has none; remove one of them")
        return self

    @property
    def critic_lr(self) -> float | None:
        """See ``AlgorithmConfig.critic_lr``."""
        return None if self.critic is None else self.critic.lr

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        views = self.tokens(spec) if self.method == "trajectory" else self._random(spec.block_size is None)
        shared = {"views": views, "unit": VIEW_TOKEN, "fresh_views": self.method != "trajectory"}
        shared |= self.critic.choices(spec.block_size) if self.critic else {}
        if spec.block_size is None:
            return self.compose(**shared, aggregate=view_means, kl_scale=view_tokens)
        plain = self.compose(**shared, aggregate=view_sums)
        return replace(plain, loss=_within(plain.loss), kl=far_k3 if plain.kl is k3 else plain.kl)

    def _random(self, masked: bool) -> ViewRule:
        def views(outcome: Outcome, inner: int) -> Views:
            rollouts = outcome.rollouts
            key_B, width = key(rollouts.key_B, "views", inner), rollouts.counted_BT.shape[1]
            # one rate per view for masked models, one per token for block-causal ones
            share_BKT = uniform(key(key_B, "rate"), self.draws, 1 if masked else width)
            rate_BKT = self.rate_low + (self.rate_high - self.rate_low) * share_BKT
            chosen_BKT = uniform(key(key_B, "mask"), self.draws, width) < rate_BKT
            return random_rows(rollouts, chosen_BKT, coupled=self.method == "coupled", hide_tail=masked)

        return views


def random_rows(rollouts: Rollouts, chosen_BKT: Tensor, *, coupled: bool, hide_tail: bool) -> Views:
    """Views that mask the ``chosen_BKT`` response tokens, with ``coupled`` also those that mask the others.

    Tokens behind the first EOS are not scored; ``hide_tail`` masks them in every view.
    """
    if coupled:
        chosen_BKT = torch.cat([chosen_BKT, ~chosen_BKT], 1)
    response_B1T, counted_B1T = rollouts.seqs.response_BT[:, None], rollouts.counted_BT[:, None]
    masked_BKT = response_B1T & (chosen_BKT | ~counted_B1T if hide_tail else chosen_BKT)
    weight_BKT = (masked_BKT & counted_B1T).to(torch.float64)
    return Views(masked_BKT, weight_BKT, torch.ones_like(weight_BKT))


def view_sums(weight_BKT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sum over each view's tokens over the canvas length, then the mean over all views of all rows."""
    return weight_BKT / canvas_length(weight_BKT, batch), _used(weight_BKT)


def view_means(weight_BKT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The mean over each view's tokens, then the mean over all views of all rows."""
    return weight_BKT / weight_BKT.sum(-1, keepdim=True).clamp_min(1), _used(weight_BKT)


def view_tokens(score: Tensor, batch: Batch) -> Tensor:
    """Tokens of each view: for masked models the authors' code averages the loss over them and sums the divergence."""
    return VIEW_TOKEN.weight(batch).sum(-1, keepdim=True).to(score.dtype)


def far_k3(difference: Tensor) -> Tensor:
    """k3 whose exponent counts as ``FAR`` where it lies beyond."""
    return (-difference).clamp(-FAR, FAR).exp() + difference - 1


def _within(loss: PolicyLoss) -> PolicyLoss:
    return lambda log_ratio, advantage: loss(log_ratio.clamp(-FAR, FAR), advantage)


def _used(weight_BKT: Tensor) -> Tensor:
    return (weight_BKT != 0).any(-1).sum(-1)
