"""BGPO: a bound of the sequence ratio that is linear in the Monte-Carlo draws (arXiv 2510.11683)."""

from functools import partial
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import AlgorithmConfig, BaselineName
from dare.algorithms.losses import bounded_exp
from dare.algorithms.units import VIEW, canvas_length
from dare.diffusion.counts import random_count
from dare.models.base import ModelSpec


class BGPO(AlgorithmConfig):
    """Section 3.2 of the paper; ``draws`` corruptions of each response, shared by the new and the old policy."""

    name: Literal["bgpo"] = "bgpo"
    group_size: PositiveInt = 8
    updates: PositiveInt = 1
    baseline: BaselineName = "std"
    draws: PositiveInt = 16

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=drawn(partial(random_count, count=self.draws)),
            loss=lower_bound,
            unit=VIEW,
            norm=canvas_length,
        )


def lower_bound(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """-A (1 + d) for A >= 0, since exp(d) >= 1 + d; -A exp(d) for A < 0, by Jensen. Tangent to -A exp(d) at d = 0."""
    return -advantage * torch.where(advantage >= 0, 1 + log_ratio, bounded_exp(log_ratio))
