"""Token log-probabilities of noised views, and the reductions that turn them into what a ratio is taken over."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dare.types import Sequences, Views

if TYPE_CHECKING:
    from dare.models.base import DiffusionLM


@dataclass(frozen=True)
class Scores:
    """``logp_BKT`` of the true token, ``entropy_BKT`` (nats) of its distribution; zero where a view does not score."""

    logp_BKT: Tensor
    entropy_BKT: Tensor


def score_view(model: "DiffusionLM", seqs: Sequences, masked_BT: Tensor, scored_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``logp_BT`` and ``logits_MV`` of one view; only scored positions meet the vocabulary.

    Block-causal models read the pair [noised | clean], so that a block sees the clean tokens before it.
    """
    noised_BT = torch.where(masked_BT, model.spec.mask_id, seqs.ids_BT)
    clean_BT = seqs.ids_BT if model.spec.attention == "block_causal" else None
    hidden_BTD = model.hidden(noised_BT, seqs.lengths_B, clean_NT=clean_BT)
    logits_MV = model.head(hidden_BTD[scored_BT])
    # half-precision logits lose the digits a ratio of probabilities needs
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    logp_M = torch.log_softmax(logits_MV, -1).gather(-1, seqs.ids_BT[scored_BT][:, None])[:, 0]
    return _scatter(logp_M, scored_BT), logits_MV


@torch.no_grad()
def score_views(model: "DiffusionLM", seqs: Sequences, views: Views) -> Scores:
    """Score every view without a graph."""
    logps, entropies = [], []
    for masked_BT, scored_BT in zip(views.masked_BKT.unbind(1), views.scored_BKT.unbind(1), strict=True):
        logp_BT, logits_MV = score_view(model, seqs, masked_BT, scored_BT)
        logps.append(logp_BT)
        entropies.append(_scatter(torch.special.entr(torch.softmax(logits_MV, -1)).sum(-1), scored_BT))
    return Scores(torch.stack(logps, dim=1), torch.stack(entropies, dim=1))


def token_sum(logp_BKT: Tensor, views: Views) -> Tensor:
    """Weighted sum over views, per token: ``[B, T]``."""
    return (logp_BKT * views.weight_BKT.to(logp_BKT.dtype)).sum(1)


def elbo(logp_BKT: Tensor, views: Views) -> Tensor:
    """Evidence lower bound ``[B]`` in nats: the mean weighted sum of views that are K independent draws."""
    return token_sum(logp_BKT, views).sum(-1) / logp_BKT.shape[1]


def _scatter(values_M: Tensor, where_BT: Tensor) -> Tensor:
    """Put gathered values back at their positions; masked_scatter keeps the graph."""
    zeros_BT = torch.zeros(where_BT.shape, dtype=values_M.dtype, device=values_M.device)
    return zeros_BT.masked_scatter(where_BT, values_M)
