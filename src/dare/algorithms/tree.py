"""Trees of rollouts: the rows are the leaves, and a node is named by the number of its first leaf.

Nodes are given as ``node_BL``: those on the way to each leaf, the root in column 0, the leaf's own in the last. Level l
is the edge from column l to column l + 1; the row that gives the child its name stands for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from dare.batch import Batch
from dare.types import Rollouts, Views


def first_leaves(leaf_B: Tensor, below: Sequence[int]) -> Tensor:
    """Nodes ``[B, L]`` on the way to each leaf of regular trees; ``below`` leaves hang on a node of each column."""
    return leaf_B[:, None] - leaf_B[:, None] % torch.tensor(below, device=leaf_B.device)


def tree_advantage(reward_B: Tensor, node_BL: Tensor) -> Tensor:
    """Value of the child of every edge minus the mean value of its siblings, ``[B, levels]``; an only child's own.

    A leaf's value is its reward, any other node's the mean of its children's.
    """
    value_B, advantages = reward_B, []
    for parent_B, child_B in reversed(list(pairwise(node_BL.unbind(1)))):
        stands_B = _stands(child_B).to(value_B.dtype)
        total_B, count_B = (_over(parent_B, part_B)[parent_B] for part_B in (stands_B * value_B, stands_B))
        advantages.append(value_B - (total_B - value_B) / (count_B - 1).clamp_min(1))
        value_B = total_B / count_B
    return torch.stack(advantages[::-1], 1)


def edge_views(rollouts: Rollouts, node_BL: Tensor, eos_ids: Iterable[int]) -> Views:
    """One view per level: the parent's canvas, in which the tokens that its child decided up to the child's first EOS
    are scored, with a loss weight of one shared out over them. A row has the views of the edges it stands for.

    The passes are cut into as many equal spans as there are levels.
    """
    levels, step_BT = node_BL.shape[1] - 1, rollouts.unmask_step_BT
    span_BT = torch.where(step_BT < 0, levels, step_BT * levels // rollouts.forwards_B[:, None])[:, None]
    level_K1 = torch.arange(levels, device=step_BT.device)[:, None]
    ends_BKT = (rollouts.seqs.holds(eos_ids)[:, None] & (span_BT <= level_K1)).long()
    stands_BK1 = torch.stack([_stands(node_B) for node_B in node_BL.unbind(1)[1:]], 1)[..., None]
    active_BKT = stands_BK1 & (span_BT == level_K1) & (ends_BKT.cumsum(-1) - ends_BKT == 0)
    masked_BKT = stands_BK1 & rollouts.seqs.response_BT[:, None] & (span_BT >= level_K1)
    weight_BKT = active_BKT.to(torch.float64)
    share_BKT = weight_BKT / weight_BKT.sum(-1, keepdim=True).clamp_min(1)
    return Views(masked_BKT, weight_BKT, torch.ones_like(weight_BKT), loss_weight_BKT=share_BKT)


def imitate(views: Views, advantage_BK: Tensor, node_BL: Tensor, weight: float, temperature: float) -> Views:
    """Let every parent imitate its children of positive advantage, in the ratio softmax(advantage / ``temperature``).

    At a position those children count that decided it; the term is ``weight`` times the mean over all such positions
    of all parents with at least two children. It is scaled by the number of edges, which divides the loss.
    """
    shares = [
        _shares(views.scored_BKT[:, level], advantage_BK[:, level] / temperature, *node_BL[:, level : level + 2].T)
        for level in range(advantage_BK.shape[1])
    ]
    share_BKT = torch.stack(shares, 1)
    # the shares of one position add up to one
    scale = weight / share_BKT.sum().clamp_min(1) * edge_count(views).sum()
    return replace(views, imitation_BKT=share_BKT * scale)


def edge_count(views: Views) -> Tensor:
    """Edges ``[B]`` that each row stands for, those on which nothing is scored included."""
    return views.masked_BKT.any(-1).sum(1)


def edge_mean(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted sum of each edge, then the mean over all edges."""
    return weight, edge_count(batch.views)


def _shares(active_BT: Tensor, logit_B: Tensor, parent_B: Tensor, child_B: Tensor) -> Tensor:
    """Softmax over the siblings that are active at a position and of positive advantage; zero for the others."""
    siblings_B = _over(parent_B, _stands(child_B).long())[parent_B]
    better_BT = active_BT & ((logit_B > 0) & (siblings_B > 1))[:, None]
    logit_BT = logit_B[:, None].expand(active_BT.shape).masked_fill(~better_BT, -torch.inf)
    index_BT = parent_B[:, None].expand(active_BT.shape)
    peak_BT = torch.full_like(logit_BT, -torch.inf).scatter_reduce(0, index_BT, logit_BT, "amax").gather(0, index_BT)
    power_BT = torch.where(better_BT, logit_BT - peak_BT, -torch.inf).exp()
    return torch.where(better_BT, power_BT / _over(parent_B, power_BT)[parent_B], 0.0)


def _stands(node_B: Tensor) -> Tensor:
    """Rows that give their node its name."""
    return node_B == torch.arange(len(node_B), device=node_B.device)


def _over(node_B: Tensor, value: Tensor) -> Tensor:
    """Sum over the rows of each node, at the node's name."""
    return torch.zeros_like(value).index_add(0, node_B, value)
