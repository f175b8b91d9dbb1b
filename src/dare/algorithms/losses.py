"""Policy losses per unit, and how units are weighted in the total."""

from collections.abc import Callable

import torch
from torch import Tensor

PolicyLoss = Callable[[Tensor, Tensor], Tensor]
"""(log ratio [B, U], advantage [B, 1] or [B, U]) -> loss [B, U]."""
Aggregate = Callable[[Tensor], tuple[Tensor, Tensor]]
"""mask [B, U] -> (weight [B, U], units per row [B]); the total is sum(weight * loss) / sum(units)."""


def clipped(log_ratio_BU: Tensor, advantage_BU: Tensor, *, low: float, high: float) -> Tensor:
    """PPO's clipped surrogate, -min(rho A, clip(rho, 1 - low, 1 + high) A) (arXiv 1707.06347, equation 7)."""
    ratio_BU = bounded_exp(log_ratio_BU)
    return -torch.minimum(ratio_BU * advantage_BU, ratio_BU.clamp(1 - low, 1 + high) * advantage_BU)


def bounded_exp(x: Tensor, bound: float = 20.0) -> Tensor:
    """exp(x), continued as a straight line above ``bound``: finite, and its gradient keeps its direction."""
    return x.clamp_max(bound).exp() * (1 + (x - bound).clamp_min(0))


def is_clipped(log_ratio_BU: Tensor, advantage_BU: Tensor, *, low: float, high: float) -> Tensor:
    """Units whose gradient the clip removes."""
    ratio_BU = bounded_exp(log_ratio_BU)
    return ((ratio_BU > 1 + high) & (advantage_BU > 0)) | ((ratio_BU < 1 - low) & (advantage_BU < 0))


def token_mean(mask_BU: Tensor) -> tuple[Tensor, Tensor]:
    """Every counted unit of the whole batch weighs the same (DAPO, arXiv 2503.14476, equation 8)."""
    return mask_BU, mask_BU.sum(1)
