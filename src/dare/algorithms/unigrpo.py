"""UniGRPO: random masking at rates spread evenly over the inner updates (MMaDA, arXiv 2505.15809)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm
from dare.algorithms.config import AggregateName, BaselineName, ClippedConfig
from dare.algorithms.units import VIEW_TOKEN
from dare.diffusion.noise import key
from dare.diffusion.views import spread_rate
from dare.models.base import ModelSpec
from dare.types import Outcome, Views


class UniGRPO(ClippedConfig):
    """Section 3.3 of the paper; the prompt is never masked and only masked tokens are scored.

    ``levels`` noise levels the rates are rounded down to. Number of updates, clip and KL weight are this project's.
    """

    name: Literal["unigrpo"] = "unigrpo"
    group_size: PositiveInt = 8
    updates: PositiveInt = 4
    baseline: BaselineName = "std"
    kl_coef: float = Field(0.01, ge=0)
    aggregate: AggregateName = "row_mean"
    levels: PositiveInt = 256

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(views=partial(_views, levels=self.levels, updates=self.updates), unit=VIEW_TOKEN)


def _views(outcome: Outcome, inner: int, *, levels: int, updates: int) -> Views:
    rollouts = outcome.rollouts
    return spread_rate(rollouts.seqs, key(rollouts.key_B, "views"), levels=levels, number=inner, count=updates)
