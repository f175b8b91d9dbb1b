"""Context-adaptive weights: a masked token counts more the closer it stands to what can be seen."""

import torch
from torch import Tensor


def cart_weight(visible_BT: Tensor, geo_p: float) -> Tensor:
    """Half the sum over visible j != i of p (1 - p)^(|i - j| - 1), at every position i, in float64 (CART, Dream, arXiv
    2508.15487, section on context-adaptive noise rescheduling).

    ``visible_BT`` excludes padding. Two recursions, one from each side, cost O(T) where the definition costs O(T^2).
    """
    both_NT = torch.cat([visible_BT, visible_BT.flip(1)]).double()
    left_BT, right_BT = _decayed(both_NT, 1 - geo_p).chunk(2)
    return geo_p / 2 * (left_BT + right_BT.flip(1))


def _decayed(seen_NT: Tensor, keep: float) -> Tensor:
    """f_i = keep f_(i-1) + seen_(i-1), from f_0 = 0."""
    sums = [torch.zeros_like(seen_NT[:, 0])]
    for seen_N in seen_NT[:, :-1].unbind(1):
        sums.append(keep * sums[-1] + seen_N)
    return torch.stack(sums, dim=1)
