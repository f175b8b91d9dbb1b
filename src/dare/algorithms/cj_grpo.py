"""CJ-GRPO: tokens scored in the very states in which they were decided (arXiv 2509.23924)."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm
from dare.algorithms.config import AggregateName, ClippedConfig
from dare.algorithms.units import VIEW_TOKEN
from dare.diffusion.trajectory import trajectory
from dare.models.base import ModelSpec


class CJGRPO(ClippedConfig):
    """Equation 11 of the paper: the mean over a transition's tokens, a response's transitions, the responses."""

    records: ClassVar[Literal["text", "steps"]] = "steps"

    name: Literal["cj_grpo"] = "cj_grpo"
    group_size: PositiveInt = 6
    updates: PositiveInt = 12
    kl_coef: float = Field(0.04, ge=0)
    clip_low: float = Field(0.5, gt=0, le=1)
    clip_high: float = Field(0.5, gt=0)
    aggregate: AggregateName = "row_mean"

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=lambda rollouts, inner: trajectory(rollouts, block_size=spec.block_size), unit=VIEW_TOKEN
        )
