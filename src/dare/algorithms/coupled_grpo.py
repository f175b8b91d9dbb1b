"""Coupled-GRPO: every token scored under two complementary masks and one full mask (DiffuCoder, arXiv 2506.20639)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.advantage import leave_one_out
from dare.algorithms.base import Algorithm, AlgorithmConfig
from dare.algorithms.kl import k3
from dare.algorithms.losses import clipped, is_clipped
from dare.diffusion.views import coupled


class CoupledGRPO(AlgorithmConfig):
    """Section 4 of the paper; ``rate_low`` and ``rate_high`` bound the mask rate of the coupled pair."""

    name: Literal["coupled_grpo"] = "coupled_grpo"
    group_size: PositiveInt = 10
    updates: PositiveInt = 2
    kl_coef: float = Field(0.01, ge=0)
    clip: float = Field(0.5, gt=0, lt=1)
    rate_low: float = Field(0.2, gt=0, lt=1)
    rate_high: float = Field(0.8, gt=0, lt=1)

    def build(self) -> Algorithm:
        """Compose the algorithm."""
        return Algorithm(
            views=partial(coupled, low=self.rate_low, high=self.rate_high),
            advantage=leave_one_out,
            loss=partial(clipped, low=self.clip, high=self.clip),
            clips=partial(is_clipped, low=self.clip, high=self.clip),
            kl=k3,
            kl_coef=self.kl_coef,
        )
