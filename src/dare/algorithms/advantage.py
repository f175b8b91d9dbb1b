"""Credit: from one reward per response to one advantage per response. ``group_B`` names the prompt of each row."""

from collections.abc import Callable

import torch
from torch import Tensor

from dare.types import Outcome, Views

Credit = Callable[[Outcome, Views], Tensor]
"""(graded rollouts, views of the first update) -> advantage [B, 1 or K, 1 or T]."""
Baseline = Callable[[Tensor, Tensor], Tensor]
"""(reward [B], group [B]) -> advantage [B]. A group of one gets zero."""


def group_mean(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Reward minus the group's mean (Dr. GRPO, arXiv 2503.20783; d1, arXiv 2504.12216)."""
    return reward_B - _mean(reward_B, group_B)


def group_std(reward_B: Tensor, group_B: Tensor, *, floor: float = 1e-6) -> Tensor:
    """Reward minus the group's mean, over the sample's standard deviation (GRPO, arXiv 2402.03300, section 4.1.1).

    The deviation is raised by ``floor``. Rewards may have more dimensions, each standardised by itself.
    """
    centred_B, size_B = group_mean(reward_B, group_B), _like(_groups(group_B)[1], reward_B)
    spread_B = (_mean(centred_B.square(), group_B) * size_B / (size_B - 1).clamp_min(1)).sqrt()
    return centred_B / (spread_B + floor)


def z_score(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Reward minus the group's mean, over the group's own deviation; zero where all are equal (TraceRL)."""
    centred_B = group_mean(reward_B, group_B)
    spread_B = _mean(centred_B.square(), group_B).sqrt()
    return torch.where(spread_B > 0, centred_B / spread_B.clamp_min(torch.finfo(spread_B.dtype).tiny), 0.0)


def leave_one_out(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Reward minus the mean of the others in the group (RLOO, arXiv 2402.14740)."""
    size_B = _groups(group_B)[1]
    return group_mean(reward_B, group_B) * size_B / (size_B - 1).clamp_min(1)


BASELINES: dict[str, Baseline] = {
    "mean": group_mean,
    "std": group_std,
    "z_score": z_score,
    "leave_one_out": leave_one_out,
}


def per_response(baseline: Baseline) -> Credit:
    """Credit that every view and token of a response shares."""
    return lambda outcome, views: baseline(outcome.reward_B, outcome.rollouts.group_B)[:, None, None]


def success_between(reward_B: Tensor, group_B: Tensor, low: float, high: float) -> Tensor:
    """Rows ``[B]`` whose group's mean reward lies in [low, high] (TraceRL, arXiv 2509.06949: success of 0.2 to 0.8)."""
    mean_B = _mean(reward_B, group_B)
    return (mean_B >= low) & (mean_B <= high)


def mixed_groups(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Rows ``[B]`` whose group holds different rewards: the others teach nothing (DAPO, arXiv 2503.14476, eq. 11)."""
    index_B, _ = _groups(group_B)
    blank_P = reward_B.new_zeros(int(index_B.max()) + 1)
    low_P, high_P = (blank_P.scatter_reduce(0, index_B, reward_B, how, include_self=False) for how in ("amin", "amax"))
    return (low_P != high_P)[index_B]


def _mean(value_B: Tensor, group_B: Tensor) -> Tensor:
    index_B, size_B = _groups(group_B)
    total_P = value_B.new_zeros(int(index_B.max()) + 1, *value_B.shape[1:])
    return total_P.index_add(0, index_B, value_B)[index_B] / _like(size_B, value_B)


def _like(size_B: Tensor, value_B: Tensor) -> Tensor:
    return size_B.view(-1, *[1] * (value_B.dim() - 1))


def _groups(group_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return a dense group index and the group's size for every row."""
    _, index_B, count_P = torch.unique(group_B, return_inverse=True, return_counts=True)
    return index_B, count_P[index_B]
