"""wd1: a weighted log-likelihood instead of a ratio (arXiv 2507.08838)."""

from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from dare.algorithms.advantage import group_mean, per_response
from dare.algorithms.aggregate import row_sum
from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.losses import reinforce
from dare.diffusion.views import fully_masked
from dare.models.base import ModelSpec


class WD1(AlgorithmConfig):
    """Equation 8 of the paper: answers are drawn towards by softmax(A / ``spread``), pushed away by softmax(-A /
    ``spread``), without a behaviour policy. ``prompt_rate`` as in d1.
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"baseline", "aggregate"})

    name: Literal["wd1"] = "wd1"
    group_size: PositiveInt = 6
    updates: PositiveInt = 12
    spread: float = Field(1.0, gt=0)
    prompt_rate: float = Field(0.15, ge=0, lt=1)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=drawn(partial(fully_masked, prompt_rate=self.prompt_rate)),
            credit=per_response(partial(pull_and_push, spread=self.spread)),
            loss=reinforce,
            behaviour=False,
            aggregate=row_sum,
        )


def pull_and_push(reward_B: Tensor, group_B: Tensor, *, spread: float) -> Tensor:
    """softmax(A) - softmax(-A) within each group, times the group's size; zero where all rewards are equal.

    The factor makes the mean over responses the mean over groups of the paper's sum.
    """
    advantage_B, weight_B = group_mean(reward_B, group_B) / spread, torch.zeros_like(reward_B)
    for group in group_B.unique():
        mine_B = group_B == group
        of_group = advantage_B[mine_B]
        weight_B[mine_B] = (of_group.softmax(0) - (-of_group).softmax(0)) * len(of_group)
    return weight_B
