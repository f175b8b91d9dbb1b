"""What a ratio is taken over: a token, a token of one view, a view, a step, a block, a whole response."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import token_sum
from dare.types import Views

Norm = Callable[[Tensor, Batch], Tensor]
"""(scores [B, ...], batch) -> what they are divided by."""


@dataclass(frozen=True)
class Unit:
    """How ``[B, K, T]`` becomes units ``[B, ...]``.

    ``reduce`` gives a score per unit, ``counted`` the units that enter the loss, ``credit`` what they share of an
    advantage ``[B, 1 or K, 1 or T]``, ``weight`` their weight in the loss before it is aggregated.
    """

    reduce: Callable[[Tensor, Views], Tensor]
    counted: Callable[[Batch], Tensor]
    credit: Callable[[Tensor], Tensor]
    weight: Callable[[Batch], Tensor]


def _scored_and_counted(batch: Batch) -> Tensor:
    return batch.views.scored_BKT & batch.counted_BT[:, None]


def _ones_like(counted: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
    return lambda batch: counted(batch).to(batch.views.weight_BKT.dtype)


def _weighted(counted_BKT: Tensor, views: Views) -> Tensor:
    ones_BKT = counted_BKT.to(views.weight_BKT.dtype)
    return ones_BKT if views.loss_weight_BKT is None else ones_BKT * views.loss_weight_BKT


def _rows(batch: Batch) -> Tensor:
    return batch.views.scored_BKT.flatten(1).any(1, keepdim=True)


TOKEN = Unit(
    reduce=token_sum,
    counted=lambda batch: batch.counted_BT,
    credit=lambda advantage_BKT: advantage_BKT[:, 0],
    weight=_ones_like(lambda batch: batch.counted_BT),
)
"""One score per token, summed over the views."""

VIEW_TOKEN = Unit(
    reduce=lambda logp_BKT, views: logp_BKT * views.weight_BKT.to(logp_BKT.dtype),
    counted=_scored_and_counted,
    credit=lambda advantage_BKT: advantage_BKT,
    weight=lambda batch: _weighted(_scored_and_counted(batch), batch.views),
)
"""Every scored token of every view by itself; views may weigh them (``loss_weight_BKT``)."""

CHOSEN_TOKEN = replace(
    VIEW_TOKEN,
    counted=lambda batch: batch.views.scored_BKT,
    weight=lambda batch: _weighted(batch.views.scored_BKT, batch.views),
)
"""As VIEW_TOKEN, where the views alone say which tokens count: theirs is not the final text."""

VIEW = Unit(
    reduce=lambda logp_BKT, views: logp_BKT.shape[1] * (logp_BKT * views.weight_BKT.to(logp_BKT.dtype)).sum(-1),
    counted=lambda batch: batch.views.scored_BKT.any(-1),
    credit=lambda advantage_BKT: advantage_BKT[..., 0],
    weight=_ones_like(lambda batch: batch.views.scored_BKT.any(-1)),
)
"""One estimate of the response's log-likelihood per view."""

STEP = Unit(
    reduce=lambda logp_BKT, views: (logp_BKT * views.weight_BKT.to(logp_BKT.dtype)).sum(-1),
    counted=lambda batch: _scored_and_counted(batch).any(-1),
    credit=lambda advantage_BKT: advantage_BKT[..., 0],
    weight=_ones_like(lambda batch: _scored_and_counted(batch).any(-1)),
)
"""One score per view: the tokens that a step decided at once."""

SEQUENCE = Unit(
    reduce=lambda logp_BKT, views: token_sum(logp_BKT, views).sum(-1, keepdim=True),
    counted=_rows,
    credit=lambda advantage_BKT: advantage_BKT[:, 0, :1],
    weight=_ones_like(_rows),
)
"""One estimate per response: the mean over its views."""


def block_unit(block_size: int) -> Unit:
    """One score per block of ``block_size`` positions, counted from the first prompt token: all that was decided in
    it. An advantage is one per response.
    """

    def reduce(logp_BKT: Tensor, views: Views) -> Tensor:
        return _by_block(token_sum(logp_BKT, views), block_size)

    def counted(batch: Batch) -> Tensor:
        return _by_block(_scored_and_counted(batch).any(1).double(), block_size) > 0

    return Unit(reduce, counted, lambda advantage_BKT: advantage_BKT[:, 0, :1], _ones_like(counted))


def _by_block(value_BT: Tensor, block_size: int) -> Tensor:
    return F.pad(value_BT, (0, -value_BT.shape[1] % block_size)).unflatten(1, (-1, block_size)).sum(-1)


def canvas_length(score: Tensor, batch: Batch) -> Tensor:
    """Response positions of each row, what follows the first EOS included, shaped to divide ``score``."""
    length_B = batch.seqs.response_BT.sum(1).clamp_min(1)
    return length_B.to(torch.promote_types(score.dtype, torch.float32)).view(-1, *[1] * (score.dim() - 1))
