"""Coupled-GRPO: every token scored under two complementary masks and one full mask (DiffuCoder, arXiv 2506.20639)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import BaselineName, ClippedConfig
from dare.diffusion.views import coupled
from dare.models.base import ModelSpec


class CoupledGRPO(ClippedConfig):
    """Section 4 of the paper; ``rate_low`` and ``rate_high`` bound the mask rate of the coupled pair."""

    name: Literal["coupled_grpo"] = "coupled_grpo"
    group_size: PositiveInt = 10
    updates: PositiveInt = 2
    baseline: BaselineName = "leave_one_out"
    kl_coef: float = Field(0.01, ge=0)
    clip_low: float = Field(0.5, gt=0, le=1)
    clip_high: float = Field(0.5, gt=0)
    rate_low: float = Field(0.2, gt=0, lt=1)
    rate_high: float = Field(0.8, gt=0, lt=1)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(views=drawn(partial(coupled, low=self.rate_low, high=self.rate_high)))
