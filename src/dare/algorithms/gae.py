"""Generalised advantage estimation over denoising steps (arXiv 1506.02438; TraceRL, arXiv 2509.06949, section 4.2)."""

import torch
from torch import Tensor

from dare.types import Views


def step_order(views: Views, block_size: int | None = None) -> Tensor:
    """Number of the step that decided each token, ``[B, T]``, from 0 without gaps; -1 where no view scores.

    ``views`` score a token once at most. Blocks come one after the other, the views of a block in their order.
    """
    scored_BKT = views.scored_BKT
    count, width = scored_BKT.shape[1:]
    block_T = torch.arange(width, device=scored_BKT.device) // (block_size or width)
    place_BT, seen_BT = block_T * count + scored_BKT.long().argmax(1), scored_BKT.any(1)
    used_BS = seen_BT.new_zeros(len(seen_BT), (int(block_T[-1]) + 1) * count, dtype=torch.int64)
    used_BS = used_BS.scatter_add(1, place_BT, seen_BT.long()) > 0
    return torch.where(seen_BT, (used_BS.cumsum(1) - 1).gather(1, place_BT), -1)


def gae(reward_BT: Tensor, value_BT: Tensor, step_BT: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Advantage ``[B, T]`` of each token, zero where ``step_BT`` is -1.

    A step's reward r and value V are the means over its tokens. With A_s = r_s - V_s + f_s, what follows step s is
    f_s = gamma V_{s+1} + gamma lam A_{s+1}, and the advantage of token j of step s is r_j - V_j + f_s.
    """
    reward_BS, value_BS = step_mean(reward_BT, step_BT), step_mean(value_BT, step_BT)
    follows_BS = torch.zeros_like(value_BS)
    for step in reversed(range(value_BS.shape[1] - 1)):
        value_B = value_BS[:, step + 1]
        advantage_B = reward_BS[:, step + 1] - value_B + follows_BS[:, step + 1]
        follows_BS[:, step] = gamma * value_B + gamma * lam * advantage_B
    advantage_BT = reward_BT - value_BT + follows_BS.gather(1, step_BT.clamp_min(0))
    return torch.where(step_BT >= 0, advantage_BT, 0.0)


def discounted(reward_BT: Tensor, step_BT: Tensor, *, gamma: float) -> Tensor:
    """Return ``[B, T]`` of each token, R_j = r_j + gamma R_{s+1}: what the advantage is without a value."""
    return gae(reward_BT, torch.zeros_like(reward_BT), step_BT, gamma=gamma, lam=1.0)


def at_the_end(reward_B: Tensor, step_BT: Tensor) -> Tensor:
    """Reward ``[B, T]`` per token: the response's own on every token of its last step."""
    last_BT = (step_BT == step_BT.amax(1, keepdim=True)) & (step_BT >= 0)
    return torch.where(last_BT, reward_B[:, None], 0.0)


def step_mean(value_BT: Tensor, step_BT: Tensor) -> Tensor:
    """Mean over the tokens of each step, ``[B, S]``; zero behind a row's last step."""
    place_BT, inside_BT = step_BT.clamp_min(0), step_BT >= 0
    blank_BS = value_BT.new_zeros(len(step_BT), max(1, int(step_BT.max()) + 1))
    total_BS = blank_BS.scatter_add(1, place_BT, torch.where(inside_BT, value_BT, 0.0))
    return total_BS / blank_BS.scatter_add(1, place_BT, inside_BT.to(value_BT.dtype)).clamp_min(1)


def whiten(advantage_BT: Tensor, inside_BT: Tensor) -> Tensor:
    """Subtract the mean and divide by the sample's deviation, both over the tokens ``inside_BT`` of all rows."""
    count = inside_BT.sum()
    mean = torch.where(inside_BT, advantage_BT, 0.0).sum() / count.clamp_min(1)
    squares_BT = torch.where(inside_BT, (advantage_BT - mean).square(), 0.0)
    return (advantage_BT - mean) * (squares_BT.sum() / (count - 1).clamp_min(1) + 1e-8).rsqrt()
