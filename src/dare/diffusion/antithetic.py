"""Antithetic views: each mask comes with its mirror image, so that what one overestimates the other does not."""

import torch
from torch import Tensor

from dare.diffusion.noise import key, uniform
from dare.diffusion.views import stack_views
from dare.types import Sequences, Views


def antithetic_count(seqs: Sequences, key_B: Tensor, *, pairs: int) -> Views:
    """``pairs`` of views that mask the first k tokens of a random order, and all from the k-th on; k uniform in 1..L.

    Mirroring both draws turns k into L + 1 - k and the order around, and leaves their distribution: each view alone
    is one of ``random_count``, weight L / (tokens masked), half of it and over ``pairs``. Unlike a mask and its
    complement no view is empty; a pair scores every token, the k-th one twice.
    """
    length_B, draw_B1 = seqs.response_BT.sum(1), uniform(key(key_B, "count"), 1)
    views = []
    for number in range(pairs):
        noise_BT = uniform(key(key_B, "order", number), seqs.ids_BT.shape[1])
        rank_BT = noise_BT.masked_fill(~seqs.response_BT, torch.inf).argsort(1).argsort(1) + 1
        k_B1 = ((draw_B1 + number / pairs) % 1.0 * length_B[:, None]).long() + 1
        for chosen_BT, size_B1 in ((rank_BT <= k_B1, k_B1), (rank_BT >= k_B1, length_B[:, None] + 1 - k_B1)):
            masked_BT = chosen_BT & seqs.response_BT
            rate_BT = (size_B1 / length_B[:, None]).double().expand(masked_BT.shape)
            views.append((masked_BT, torch.where(masked_BT, 1 / rate_BT / (2 * pairs), 0.0), rate_BT))
    return stack_views(views)
