"""How units are weighted in the total: weights and unit counts, so that the division happens once, over the batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from dare.algorithms.units import canvas_length
from dare.batch import Batch

Aggregate = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""(weight [B, ...], zero where a unit does not count; batch) -> (weight, units per row [B]).

The total is sum(weight * loss) / sum(units).
"""


def unit_mean(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Every unit of the whole batch by its weight: with tokens, DAPO's token mean (arXiv 2503.14476, equation 8)."""
    return weight, _per_row(weight)


def row_mean(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted mean of each response, then the mean over responses (GRPO, arXiv 2402.03300, equation 3)."""
    total_B = _per_row(weight)
    return weight / total_B.clamp_min(torch.finfo(weight.dtype).tiny).view(-1, *[1] * (weight.dim() - 1)), _some(weight)


def row_sum(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted sum of each response, then the mean over responses."""
    return weight, _some(weight)


def canvas_mean(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sum of each response over the canvas length, a constant, then the mean (Dr. GRPO, arXiv 2503.20783)."""
    return weight / canvas_length(weight, batch), _some(weight)


AGGREGATES: dict[str, Aggregate] = {rule.__name__: rule for rule in (unit_mean, row_mean, row_sum, canvas_mean)}


def _per_row(weight: Tensor) -> Tensor:
    return weight.flatten(1).sum(1)


def _some(weight: Tensor) -> Tensor:
    return (weight != 0).flatten(1).any(1)
