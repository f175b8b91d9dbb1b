"""Policy losses per unit."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

PolicyLoss = Callable[[Tensor, Tensor], Tensor]
"""(log ratio [B, ...], advantage of a shape that broadcasts to it) -> loss per unit.

Without a behaviour policy the log ratio is the score itself.
"""
Clips = Callable[[Tensor, Tensor], Tensor]
"""(log ratio, advantage) -> units whose gradient the loss has cut off."""


def clipped(log_ratio: Tensor, advantage: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """PPO's clipped surrogate, -min(rho A, clip(rho, 1 - low, 1 + high) A) (arXiv 1707.06347, equation 7).

    ``dual`` bounds the loss of a negative advantage at -dual A (dual clip, arXiv 1912.09729, equation 5).
    """
    ratio = bounded_exp(log_ratio)
    loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    if dual is None:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)


def is_clipped(log_ratio: Tensor, advantage: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """Units whose gradient ``clipped`` removes."""
    above, below = log_ratio > math.log1p(high), log_ratio < (math.log1p(-low) if low < 1 else -math.inf)
    cut = (above & (advantage > 0)) | (below & (advantage < 0))
    return cut if dual is None else cut | ((advantage < 0) & (log_ratio > math.log(dual)))


def reinforce(score: Tensor, advantage: Tensor) -> Tensor:
    """-A log p (REINFORCE)."""
    return -advantage * score


def never(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """No unit: for losses that do not clip."""
    return torch.zeros_like(log_ratio, dtype=torch.bool)


def bounded_exp(x: Tensor, bound: float = 20.0) -> Tensor:
    """exp(x), continued as a straight line above ``bound``: finite, and its gradient keeps its direction."""
    return x.clamp_max(bound).exp() * (1 + (x - bound).clamp_min(0))
