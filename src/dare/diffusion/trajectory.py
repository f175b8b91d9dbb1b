"""Views of the states a rollout passed through: what the model saw when it decided a token."""

from dataclasses import replace

import torch
from torch import Tensor

from dare.diffusion.noise import key, uniform
from dare.diffusion.views import stack_views
from dare.types import Rollouts, Sequences, Views

_NEVER = 2**30


def replay(rollouts: Rollouts, step_BK: Tensor, mask_id: int) -> Views:
    """The canvas before forward pass ``step_BK`` of each row, and the tokens that this pass decided.

    Exact for every decoder: where tokens were masked again or edited, the recorded states are read.
    """
    response_BKT = rollouts.seqs.response_BT[:, None].expand(-1, step_BK.shape[1], -1)
    if rollouts.states_BST is None:
        step_BT = _decided(rollouts)[:, None]
        masked_BKT, scored_BKT = response_BKT & (step_BT >= step_BK[..., None]), step_BT == step_BK[..., None]
        return _views(masked_BKT, scored_BKT)
    before_BKT, after_BKT = (_state(rollouts, step_BK + offset) for offset in (0, 1))
    masked_BKT = response_BKT & (before_BKT == mask_id)
    scored_BKT = masked_BKT & (after_BKT != mask_id) & (step_BK < rollouts.forwards_B[:, None])[..., None]
    return replace(_views(masked_BKT, scored_BKT), ids_BKT=torch.where(scored_BKT, after_BKT, before_BKT))


def trajectory(rollouts: Rollouts, *, block_size: int | None = None, shrink: int = 1) -> Views:
    """Every transition of a rollout: one view per step, scoring the tokens up to the first EOS decided at it.

    With ``block_size`` (block-causal models) a view takes the same step of every block at once, since the blocks of
    the noised half do not see each other. ``shrink`` consecutive steps of a block, or of the response, count as one
    (TraceRL, arXiv 2509.06949, section 4.3). ``loss_weight_BKT`` shares a weight of one out over each transition.
    """
    return _transitions(rollouts.seqs, rollouts.counted_BT, _decided(rollouts), block_size, shrink)


def left_to_right(seqs: Sequences, counted_BT: Tensor, *, block_size: int | None = None) -> Views:
    """One view per response position, which sees what precedes it: the exact likelihood of left-to-right decoding.

    For block-causal models a view takes the same position of every block at once. Only ``counted_BT`` is scored.
    """
    column_T = torch.arange(seqs.ids_BT.shape[1], device=seqs.ids_BT.device)
    return _transitions(seqs, counted_BT, torch.where(seqs.response_BT, column_T, _NEVER), block_size, 1)


def one_transition(seqs: Sequences, step_BT: Tensor, key_B: Tensor, *, block_size: int | None = None) -> Views:
    """One view of one transition, drawn at random; its weight is the number of transitions there are.

    Its weighted sum averages to that over all views of ``trajectory`` or ``left_to_right``. ``step_BT`` is the pass
    that decided each response position, -1 where none did: such a position stays masked and is never scored. With
    ``block_size`` (block-causal models) every block draws one of its own transitions. ``rate_BKT`` is the share of the
    transitions that were still to come.
    """
    decided_BT = seqs.response_BT & (step_BT >= 0)
    order_BT, block_BT = _order(torch.where(decided_BT, step_BT, _NEVER), block_size, 1)
    count_BN = order_BT.new_zeros(len(order_BT), int(block_BT.max()) + 1)
    count_BN.scatter_reduce_(1, block_BT, torch.where(decided_BT, order_BT + 1, 0), "amax")
    drawn_BN = (uniform(key(key_B, "transition"), count_BN.shape[1]) * count_BN).long()
    drawn_BT, count_BT = drawn_BN.gather(1, block_BT), count_BN.gather(1, block_BT)
    masked_BT, scored_BT = seqs.response_BT & (order_BT >= drawn_BT), decided_BT & (order_BT == drawn_BT)
    rate_BT = (count_BT - drawn_BT).double() / count_BT.clamp_min(1)
    return stack_views([(masked_BT, (scored_BT * count_BT).double(), rate_BT)])


def _transitions(seqs: Sequences, counted_BT: Tensor, step_BT: Tensor, block_size: int | None, shrink: int) -> Views:
    """A view per (merged) step of the order in which ``step_BT`` says that tokens were decided."""
    order_BT, block_BT = _order(step_BT, block_size, shrink)
    last = int(order_BT[order_BT < _NEVER].max())
    view_K1 = torch.arange(last + 1, device=step_BT.device)[:, None]
    masked_BKT = seqs.response_BT[:, None] & (order_BT[:, None] >= view_K1)
    scored_BKT = (order_BT[:, None] == view_K1) & counted_BT[:, None]
    sizes_BKN = scored_BKT.new_zeros(*scored_BKT.shape[:2], int(block_BT.max()) + 1, dtype=torch.float64)
    where_BKT = block_BT[:, None].expand_as(scored_BKT)
    sizes_BKN.scatter_add_(2, where_BKT, scored_BKT.double())
    weight_BKT = scored_BKT / sizes_BKN.gather(2, where_BKT).clamp_min(1)
    return replace(_views(masked_BKT, scored_BKT), loss_weight_BKT=weight_BKT)


def _order(step_BT: Tensor, block_size: int | None, shrink: int) -> tuple[Tensor, Tensor]:
    """Place of each position's (merged) step among those of its block, never where it has none; and its block."""
    column_T = torch.arange(step_BT.shape[1], device=step_BT.device)
    block_BT = (column_T // (block_size or step_BT.shape[1])).expand_as(step_BT)
    return torch.where(step_BT < _NEVER, _rank(step_BT, block_BT) // shrink, _NEVER), block_BT


def _rank(step_BT: Tensor, block_BT: Tensor) -> Tensor:
    """Number of distinct smaller steps in the same block."""
    place_BT = block_BT.long() * 2 * _NEVER + step_BT
    sorted_BT, order_BT = place_BT.sort(dim=1)
    fresh_BT = torch.ones_like(sorted_BT)
    fresh_BT[:, 1:] = (sorted_BT[:, 1:] != sorted_BT[:, :-1]).long()
    dense_BT = torch.zeros_like(fresh_BT).scatter(1, order_BT, fresh_BT.cumsum(1))
    first_BN = dense_BT.new_full((len(dense_BT), int(block_BT.max()) + 1), _NEVER)
    first_BN.scatter_reduce_(1, block_BT, dense_BT, "amin")
    return dense_BT - first_BN.gather(1, block_BT)


def _decided(rollouts: Rollouts) -> Tensor:
    """The pass that decided each position; never, where none did."""
    return torch.where(rollouts.unmask_step_BT < 0, _NEVER, rollouts.unmask_step_BT)


def _state(rollouts: Rollouts, step_BK: Tensor) -> Tensor:
    """The text before a pass; after the last one it is the final text."""
    assert rollouts.states_BST is not None
    texts_BST = torch.cat([rollouts.states_BST, rollouts.seqs.ids_BT[:, None]], dim=1)
    step_BK = step_BK.clamp_max(texts_BST.shape[1] - 1)
    return texts_BST.gather(1, step_BK[..., None].expand(-1, -1, texts_BST.shape[2]))


def _views(masked_BKT: Tensor, scored_BKT: Tensor) -> Views:
    weight_BKT = scored_BKT.to(torch.float64)
    return Views(masked_BKT, weight_BKT, weight_BKT.new_ones(()).expand_as(weight_BKT))
