"""View samplers: which positions to mask, with which weight. Each is a pure function of a row and its noise key.

A sampler takes ``(seqs, key_B)`` and returns K noised views. The weights make the weighted sum of token
log-probabilities an estimate of the evidence lower bound, or a surrogate of it where the algorithm says so.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from dare.diffusion.noise import key, uniform
from dare.types import Sequences, Views

ViewSampler = Callable[[Sequences, Tensor], Views]

MIN_RATE = 1e-3
"""Smallest corruption rate (LLaDA, arXiv 2502.09992, algorithm 1): keeps the weight 1/t finite."""


def random_rate(seqs: Sequences, key_B: Tensor) -> Views:
    """One view at rate t ~ U(MIN_RATE, 1) per sequence, weight 1/t (LLaDA, arXiv 2502.09992, equation 3)."""
    return _bernoulli(seqs, key_B, MIN_RATE + (1 - MIN_RATE) * times(seqs, key_B))


def block_rate(seqs: Sequences, key_B: Tensor, *, block_size: int) -> Views:
    """One view in which every block draws its own rate t, weight 1/t (BD3-LM, arXiv 2503.09573, equation 8).

    Blocks are counted from the first prompt token, as the block-causal mask counts them.
    """
    return _bernoulli(seqs, key_B, MIN_RATE + (1 - MIN_RATE) * times(seqs, key_B, block_size))


def times(seqs: Sequences, key_B: Tensor, block_size: int | None = None) -> Tensor:
    """A uniform per sequence, or per block of ``block_size`` positions, at each of its positions: ``[B, T]``."""
    if block_size is None:
        return uniform(key(key_B, "rate"), 1).expand(seqs.ids_BT.shape)
    block_T = torch.arange(seqs.ids_BT.shape[1], device=key_B.device) // block_size
    return uniform(key(key_B, "rate"), int(block_T[-1]) + 1)[:, block_T]


def flips(seqs: Sequences, key_B: Tensor, rate_BT: Tensor) -> Tensor:
    """Response positions, each chosen with its probability ``rate_BT`` by a coin of its own."""
    return seqs.response_BT & (uniform(key(key_B, "mask"), seqs.ids_BT.shape[1]) < rate_BT)


def fully_masked(seqs: Sequences, key_B: Tensor, *, prompt_rate: float = 0.15) -> Views:
    """The whole response masked, prompt tokens at ``prompt_rate``, weight 1 (d1, arXiv 2504.12216, section 3.2)."""
    prompt_BT = seqs.valid_BT & ~seqs.response_BT
    noise_BT = uniform(key(key_B, "prompt"), seqs.ids_BT.shape[1])
    masked_BT = seqs.response_BT | (prompt_BT & (noise_BT < prompt_rate))
    weight_BT = seqs.response_BT.to(torch.float64)
    return stack_views([(masked_BT, weight_BT, torch.ones_like(weight_BT))])


def coupled(seqs: Sequences, key_B: Tensor, *, low: float = 0.2, high: float = 0.8) -> Views:
    """Three views: all masked, a random set at rate t ~ U(low, high), its complement (DiffuCoder, arXiv 2506.20639).

    Weights 1/2, 1/(2t), 1/(2(1-t)): every token is scored once with everything hidden and once in a partial context.
    """
    rate_B1 = low + (high - low) * uniform(key(key_B, "rate"), 1)
    chosen_BT = uniform(key(key_B, "mask"), seqs.ids_BT.shape[1]) < rate_B1
    response_BT, one_BT = seqs.response_BT, torch.ones(seqs.ids_BT.shape, dtype=torch.float64, device=key_B.device)
    views = []
    for masked_BT, rate_BT in [
        (response_BT, one_BT),
        (response_BT & chosen_BT, one_BT * rate_B1),
        (response_BT & ~chosen_BT, one_BT * (1 - rate_B1)),
    ]:
        views.append((masked_BT, masked_BT / (2 * rate_BT), rate_BT))
    return stack_views(views)


def spread_rate(seqs: Sequences, key_B: Tensor, *, levels: int, number: int, count: int) -> Views:
    """View ``number`` of ``count`` whose rates go from a random one to 1 in even steps, each a whole number of
    ``levels``-ths; weight 1 (UniGRPO, arXiv 2505.15809, section 3.3).
    """
    first_B1 = (uniform(key(key_B, "rate"), 1) * levels).floor()
    level_B1 = (first_B1 + number / max(1, count - 1) * (levels - first_B1)).floor()
    views = _bernoulli(seqs, key(key_B, number), (level_B1 / levels).expand(seqs.ids_BT.shape))
    return replace(views, weight_BKT=views.masked_BKT.double())


def _bernoulli(seqs: Sequences, key_B: Tensor, rate_BT: Tensor) -> Views:
    masked_BT = flips(seqs, key_B, rate_BT)
    weight_BT = torch.where(masked_BT, 1 / rate_BT, 0.0)
    return stack_views([(masked_BT, weight_BT, rate_BT)])


def stack_views(views: list[tuple[Tensor, Tensor, Tensor]]) -> Views:
    """Make views of their masks, weights and rates."""
    masked, weight, rate = (torch.stack(parts, dim=1) for parts in zip(*views, strict=True))
    return Views(masked, weight, rate)


def join_views(first: Views, second: Views, seqs: Sequences) -> Views:
    """The views of both, of the same ``seqs``: what they mask, weigh and show."""
    both = (first, second)
    joined = Views(
        torch.cat([views.masked_BKT for views in both], dim=1),
        torch.cat([views.weight_BKT for views in both], dim=1),
        torch.cat([views.rate_BKT for views in both], dim=1),
    )
    shown = [views.shown_BKT for views in both]
    if all(one is None for one in shown):
        return joined
    ids = [seqs.ids_BT[:, None].expand_as(views.masked_BKT) for views in both]
    parts = [own if one is None else one for one, own in zip(shown, ids, strict=True)]
    return replace(joined, shown_BKT=torch.cat(parts, dim=1))
