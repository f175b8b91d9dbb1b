"""Views that follow the order of a block-wise decoder: what precedes a block is known, what follows it is not."""

import torch
from torch import Tensor

from dare.diffusion.noise import key, ranks, uniform
from dare.diffusion.views import stack_views
from dare.types import Sequences, Views


def block_prefix(
    seqs: Sequences,
    key_B: Tensor,
    *,
    counted_BT: Tensor,
    block_size: int,
    from_prompt: bool,
    rates: tuple[float, float],
    prompt_rate: float,
    count: int,
) -> Views:
    """``count`` views, each of another block of the answer (SPG, arXiv 2510.09541, section 3.3 and appendix).

    Of the block's L answer tokens k are masked, k uniform over max(1, L low)..L high; so is all behind it, and each
    token before it with probability ``prompt_rate``. Scored is what is masked up to the first EOS (``counted_BT``),
    with weight 1 / (number scored x ``count``): the weighted sum is a log-likelihood per token. ``rate_BKT`` is the
    share of the answer that a view scores. The blocks of a row are a random order of those its answer covers, begun
    again when it is through. Blocks are counted from the first response token, or ``from_prompt``'s first one.
    """
    block_BT = _blocks(seqs, block_size, from_prompt)
    order_BN, covered_B = _order(block_BT, counted_BT, key(key_B, "order"))
    views = []
    for number in range(count):
        chosen_B1 = order_BN.gather(1, (number % covered_B)[:, None])
        mine_BT = counted_BT & (block_BT == chosen_B1)
        k_B1 = _size(mine_BT.sum(1, keepdim=True), uniform(key(key_B, "count", number), 1), rates)
        rank_BT = ranks(uniform(key(key_B, "subset", number), seqs.ids_BT.shape[1]), mine_BT)
        noised_BT = uniform(key(key_B, "noise", number), seqs.ids_BT.shape[1]) < prompt_rate
        behind_BT = seqs.response_BT & ((block_BT > chosen_B1) | ~counted_BT)
        before_BT = seqs.valid_BT & ~mine_BT & ~behind_BT
        masked_BT = behind_BT | (mine_BT & (rank_BT < k_B1)) | (before_BT & noised_BT)
        scored_BT = masked_BT & counted_BT
        size_B1 = scored_BT.sum(1, keepdim=True).clamp_min(1)
        rate_BT = (size_B1.double() / counted_BT.sum(1, keepdim=True).clamp_min(1)).expand(scored_BT.shape)
        views.append((masked_BT, scored_BT.double() / size_B1 / count, rate_BT))
    return stack_views(views)


def _blocks(seqs: Sequences, block_size: int, from_prompt: bool) -> Tensor:
    """The block of each position."""
    position_T = torch.arange(seqs.ids_BT.shape[1], device=seqs.ids_BT.device)
    first_B1 = seqs.response_BT.long().argmax(1, keepdim=True)
    return (position_T - (0 if from_prompt else first_B1)).div(block_size, rounding_mode="floor")


def _order(block_BT: Tensor, counted_BT: Tensor, key_B: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks that hold answer tokens in random order, the others last; and how many they are (at least one)."""
    number_N = torch.arange(int(block_BT.max()) + 1, device=block_BT.device)
    covered_BN = ((block_BT[..., None] == number_N) & counted_BT[..., None]).any(1)
    noise_BN = uniform(key_B, len(number_N)).masked_fill(~covered_BN, torch.inf)
    return noise_BN.argsort(1), covered_BN.sum(1).clamp_min(1)


def _size(length_B1: Tensor, draw_B1: Tensor, rates: tuple[float, float]) -> Tensor:
    low_B1 = (length_B1 * rates[0]).long().clamp_min(1)
    high_B1 = torch.maximum((length_B1 * rates[1]).long(), low_B1)
    return low_B1 + (draw_B1 * (high_B1 - low_B1 + 1)).long().clamp_max(high_B1 - low_B1)
