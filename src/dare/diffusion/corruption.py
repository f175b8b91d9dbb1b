"""Random masks with their weights: every published variant of masked SFT is one combination of these choices."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from dare.diffusion.cart import cart_weight
from dare.diffusion.noise import key, uniform
from dare.diffusion.rates import Schedule, linear
from dare.diffusion.views import MIN_RATE, flips, stack_views, times
from dare.types import Sequences, Views

Weight = Literal["elbo", "none", "cart"]


@dataclass(frozen=True)
class Corruption:
    """A view sampler. A rate between ``low`` and ``high`` by ``schedule`` per sequence, or per block of ``block_size``.

    ``weight`` of a masked token: "elbo" as the evidence lower bound has it, whatever the schedule: the average over
    rates uniform in (low, high) of the masked tokens' log-probabilities over the rate; "none" one; "cart" by its
    visible neighbours, geometric with ``geo_p``. ``complementary`` adds the view that masks exactly the other answer
    tokens; with "elbo" each view is half the estimate.
    """

    schedule: Schedule = linear
    low: float = MIN_RATE
    high: float = 1.0
    block_size: int | None = None
    weight: Weight = "elbo"
    geo_p: float = 0.3
    complementary: bool = False

    def __call__(self, seqs: Sequences, key_B: Tensor) -> Views:
        """Draw rates and masks."""
        rate_BT, rarity_BT = self.schedule(times(seqs, key_B, self.block_size), self.low, self.high)
        return self.views(seqs, flips(seqs, key_B, rate_BT), rate_BT, rarity_BT)

    def views(self, seqs: Sequences, masked_BT: Tensor, rate_BT: Tensor, rarity_BT: Tensor) -> Views:
        """Weigh given masks of given rates."""
        if not self.complementary:
            return stack_views([(masked_BT, self._weight(seqs, masked_BT, rate_BT, rarity_BT), rate_BT)])
        halves = [(masked_BT, rate_BT), (seqs.response_BT & ~masked_BT, 1 - rate_BT)]
        return stack_views([(m_BT, self._weight(seqs, m_BT, r_BT, rarity_BT / 2), r_BT) for m_BT, r_BT in halves])

    def _weight(self, seqs: Sequences, masked_BT: Tensor, rate_BT: Tensor, rarity_BT: Tensor) -> Tensor:
        if self.weight == "none":
            return masked_BT.double()
        if self.weight == "cart":
            return torch.where(masked_BT, cart_weight(seqs.valid_BT & ~masked_BT, self.geo_p), 0.0)
        return torch.where(masked_BT, rarity_BT / rate_BT, 0.0)


def with_wrong_tokens(
    views: Views, seqs: Sequences, key_B: Tensor, *, rate: float, weight: float, words_N: Tensor
) -> Views:
    """Replace visible answer tokens at ``rate`` by random ones of ``words_N``, and score the true token there.

    The mask-plus-edit mixture of LLaDA2.1 (arXiv 2602.08676): the model learns to fill masks in a context that may be
    wrong, and to correct what it sees. A replaced token has the given ``weight``.
    """
    shape = views.masked_BKT.shape[1:]
    hit_BKT = seqs.response_BT[:, None] & ~views.masked_BKT & (uniform(key(key_B, "edit"), *shape) < rate)
    random_BKT = words_N[(uniform(key(key_B, "word"), *shape) * len(words_N)).long()]
    return replace(
        views,
        weight_BKT=torch.where(hit_BKT, weight, views.weight_BKT),
        shown_BKT=torch.where(hit_BKT, random_BKT, seqs.ids_BT[:, None]),
    )
