"""CJ-GRPO: tokens scored in the very states in which they were decided (arXiv 2509.23924)."""

from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm
from dare.algorithms.config import AggregateName
from dare.algorithms.steps import StepsConfig
from dare.models.base import ModelSpec


class CJGRPO(StepsConfig):
    """Equation 11 of the paper: the mean over a transition's tokens, a response's transitions, the responses."""

    name: Literal["cj_grpo"] = "cj_grpo"
    group_size: PositiveInt = 6
    updates: PositiveInt = 12
    kl_coef: float = Field(0.04, ge=0)
    clip_low: float = Field(0.5, gt=0, le=1)
    clip_high: float = Field(0.5, gt=0)
    aggregate: AggregateName = "row_mean"

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(views=self.transitions(spec), fresh_views=False, **self.units(spec))
