"""View samplers that mask an exact number of response tokens: less variance than independent coin flips."""

import torch.nn.functional as F
from torch import Tensor

from dare.diffusion.noise import key, ranks, uniform
from dare.diffusion.views import stack_views
from dare.types import Sequences, Views


def random_count(seqs: Sequences, key_B: Tensor, *, count: int, levels: int | None = None) -> Views:
    """``count`` subsets of k_j of the L response tokens, weight L / k_j over ``count``.

    The k_j of a row are one draw from 1..L, moved on by L / ``count`` each time (LLaDA, arXiv 2502.09992, appendix
    B.4): every k_j is uniform, together they are stratified. With fewer ``levels`` than views the views share them.
    """
    levels = levels or count
    length_B = seqs.response_BT.sum(1)
    views = []
    for number in range(count):
        k_B = _stratified(uniform(key(key_B, "count"), 1)[:, 0], length_B, number % levels, levels) + 1
        masked_BT = _subset(seqs, key(key_B, "subset", number), k_B)
        rate_BT = (k_B.double() / length_B)[:, None].expand(masked_BT.shape)
        views.append((masked_BT, masked_BT / rate_BT / count, rate_BT))
    return stack_views(views)


def coupled_count(seqs: Sequences, key_B: Tensor, *, pairs: int) -> Views:
    """``pairs`` subsets of k of the L response tokens, k uniform over 0..L, each with its complement.

    Weights (L + 1) / k on the subset and (L + 1) / (L - k) on the complement, half of each and over ``pairs`` (ESPO,
    arXiv 2512.03759): both are the evidence lower bound, and an empty one contributes nothing.
    """
    length_B = seqs.response_BT.sum(1)
    views = []
    for number in range(pairs):
        k_B = _stratified(uniform(key(key_B, "count"), 1)[:, 0], length_B + 1, number, pairs)
        chosen_BT = _subset(seqs, key(key_B, "subset", number), k_B)
        for masked_BT, size_B in ((chosen_BT, k_B), (seqs.response_BT & ~chosen_BT, length_B - k_B)):
            weight_BT = masked_BT * ((length_B + 1).double() / (2 * pairs * size_B.clamp_min(1)))[:, None]
            views.append((masked_BT, weight_BT, (size_B / length_B)[:, None].expand(masked_BT.shape)))
    return stack_views(views)


def antithetic_count(seqs: Sequences, key_B: Tensor, *, pairs: int) -> Views:
    """``pairs`` of views that mask the first k tokens of a random order, and all from the k-th on; k uniform in 1..L.

    Mirroring both draws turns k into L + 1 - k and the order around, and leaves their distribution: each view alone
    is one of ``random_count``, weight L / (tokens masked), half of it and over ``pairs``. Unlike a mask and its
    complement no view is empty; a pair scores every token, the k-th one twice.
    """
    length_B = seqs.response_BT.sum(1)
    views = []
    for number in range(pairs):
        place_BT = _order(seqs, key(key_B, "order", number)) + 1
        k_B = _stratified(uniform(key(key_B, "count"), 1)[:, 0], length_B, number, pairs) + 1
        halves = ((place_BT <= k_B[:, None], k_B), (place_BT >= k_B[:, None], length_B + 1 - k_B))
        for chosen_BT, size_B in halves:
            masked_BT = chosen_BT & seqs.response_BT
            rate_BT = (size_B.double() / length_B)[:, None].expand(masked_BT.shape)
            views.append((masked_BT, masked_BT / rate_BT / (2 * pairs), rate_BT))
    return stack_views(views)


def block_count(seqs: Sequences, key_B: Tensor, *, block_size: int, count: int, levels: int | None = None) -> Views:
    """``count`` views in which every block masks k_b of its L_b response tokens, weight L_b / k_b over ``count``.

    Blocks are counted from the first prompt token. Each k_b is uniform over 1..L_b; those of a row are stratified over
    its (view, block) cells, and those of one block over the views (the block-wise form of ``random_count``). With
    fewer ``levels`` than views the views share them.
    """
    levels = levels or count
    width, draw_B1 = seqs.ids_BT.shape[1], uniform(key(key_B, "count"), 1)
    response_BNS = F.pad(seqs.response_BT, (0, -width % block_size)).unflatten(1, (-1, block_size))
    size_BN, open_BN = response_BNS.sum(-1).clamp_min(1), response_BNS.any(-1)
    # blocks that hold no response are no cells, so padding moves no level
    place_BN = (open_BN.cumsum(1) - 1) / open_BN.sum(1, keepdim=True).clamp_min(1)
    views = []
    for number in range(count):
        k_BN = _stratified(draw_B1, size_BN, number % levels + place_BN, levels) + 1
        noise_BT = uniform(key(key_B, "subset", number), response_BNS[0].numel())
        rank_BNS = ranks(noise_BT.view_as(response_BNS), response_BNS)
        masked_BNS = response_BNS & (rank_BNS < k_BN[..., None])
        rate_BNS = (k_BN.double() / size_BN)[..., None].expand(response_BNS.shape)
        masked_BT, rate_BT = (part.flatten(1)[:, :width] for part in (masked_BNS, rate_BNS))
        views.append((masked_BT, masked_BT / rate_BT / count, rate_BT))
    return stack_views(views)


def _stratified(draw_B: Tensor, choices_B: Tensor, number: int | Tensor, count: int) -> Tensor:
    """A uniform whole number below ``choices_B``; those of one row lie evenly apart, around the clock."""
    return ((draw_B + number / count) % 1.0 * choices_B).long().clamp_max(choices_B - 1)


def _subset(seqs: Sequences, key_B: Tensor, k_B: Tensor) -> Tensor:
    """A uniform subset of ``k_B`` response positions."""
    return seqs.response_BT & (_order(seqs, key_B) < k_B[:, None])


def _order(seqs: Sequences, key_B: Tensor) -> Tensor:
    """Place of each response position in a random order."""
    return ranks(uniform(key_B, seqs.ids_BT.shape[1]), seqs.response_BT)
