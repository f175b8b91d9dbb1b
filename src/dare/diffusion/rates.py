"""Noise schedules: how a uniform time becomes the share of an answer that is masked."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Schedule = Callable[[Tensor, float, float], tuple[Tensor, Tensor]]
"""(times in [0, 1), lowest rate, highest rate) -> (mask rates, how many times rarer than a uniform rate each is).

Time runs evenly over the part of the schedule whose rates lie between the two. A rate m(u) of time u is drawn with
density 1 / m'(u), so the second is m'(u) / (high - low). Divided by the rate it is the weight of the evidence lower
bound, -alpha' / (1 - alpha) with alpha = 1 - m (MDLM, arXiv 2406.07524, equation 10), over the rates' span.
"""


def linear(time: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Rates grow evenly (LLaDA, arXiv 2502.09992)."""
    return low + (high - low) * time, torch.ones_like(time)


def cosine(time: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """m(u) = cos(pi (1 - u) / 2): high rates are drawn more often (MaskGIT, arXiv 2202.04200, section 3.3)."""
    first, last = (2 / math.pi * math.asin(rate) for rate in (low, high))
    angle = math.pi / 2 * (first + (last - first) * time)
    return angle.sin(), angle.cos() * (math.pi / 2 * (last - first) / (high - low))


SCHEDULES: dict[str, Schedule] = {"linear": linear, "cosine": cosine}
