"""d1 / diffu-GRPO: a one-step, fully masked estimate of every token's log-probability (arXiv 2504.12216)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import ClippedConfig
from dare.diffusion.views import fully_masked
from dare.models.base import ModelSpec


class D1(ClippedConfig):
    """Equation 3 of the paper; ``prompt_rate`` is the random prompt masking that regularises its inner updates."""

    name: Literal["d1"] = "d1"
    group_size: PositiveInt = 6
    updates: PositiveInt = 12
    kl_coef: float = Field(0.04, ge=0)
    clip_low: float = Field(0.5, gt=0, le=1)
    clip_high: float = Field(0.5, gt=0)
    prompt_rate: float = Field(0.15, ge=0, lt=1)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(views=drawn(partial(fully_masked, prompt_rate=self.prompt_rate)))
