"""Credit: from one reward per response to one advantage per response. ``group_B`` names the prompt of each row."""

from collections.abc import Callable

import torch
from torch import Tensor

Advantage = Callable[[Tensor, Tensor], Tensor]


def group_mean(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Reward minus the group's mean (Dr. GRPO, arXiv 2503.20783; d1, arXiv 2504.12216). A group of one gets zero."""
    index_B, size_B = _groups(group_B)
    total_P = torch.zeros(int(index_B.max()) + 1, dtype=reward_B.dtype, device=reward_B.device)
    mean_B = total_P.index_add(0, index_B, reward_B)[index_B] / size_B
    return reward_B - mean_B


def leave_one_out(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """Reward minus the mean of the others in the group (RLOO, arXiv 2402.14740). A group of one gets zero."""
    size_B = _groups(group_B)[1]
    return group_mean(reward_B, group_B) * size_B / (size_B - 1).clamp_min(1)


def _groups(group_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return a dense group index and the group's size for every row."""
    _, index_B, count_P = torch.unique(group_B, return_inverse=True, return_counts=True)
    return index_B, count_P[index_B]
