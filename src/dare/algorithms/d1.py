"""d1 / diffu-GRPO: a one-step, fully masked estimate of every token's log-probability (arXiv 2504.12216)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.advantage import group_mean
from dare.algorithms.base import Algorithm, AlgorithmConfig
from dare.algorithms.kl import k3
from dare.algorithms.losses import clipped, is_clipped
from dare.diffusion.views import fully_masked


class D1(AlgorithmConfig):
    """Equation 3 of the paper; ``prompt_rate`` is the random prompt masking that regularises its inner updates."""

    name: Literal["d1"] = "d1"
    group_size: PositiveInt = 6
    updates: PositiveInt = 12
    kl_coef: float = Field(0.04, ge=0)
    clip: float = Field(0.5, gt=0, lt=1)
    prompt_rate: float = Field(0.15, ge=0, lt=1)

    def build(self) -> Algorithm:
        """Compose the algorithm."""
        return Algorithm(
            views=partial(fully_masked, prompt_rate=self.prompt_rate),
            advantage=group_mean,
            loss=partial(clipped, low=self.clip, high=self.clip),
            clips=partial(is_clipped, low=self.clip, high=self.clip),
            kl=k3,
            kl_coef=self.kl_coef,
        )
