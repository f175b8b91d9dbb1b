"""Token log-probabilities of noised views, and the reductions that turn them into what a ratio is taken over."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dare.diffusion.vocabulary import Reading
from dare.types import Sequences, Views

if TYPE_CHECKING:
    from dare.models.base import Scorer


@dataclass(frozen=True)
class Scores:
    """``logp_BKT`` of the true token, ``entropy_BKT`` (nats) of its distribution; zero where a view does not score.

    A value model's values stand in the place of log-probabilities.
    """

    logp_BKT: Tensor
    entropy_BKT: Tensor


def score_view(model: "Scorer", seqs: Sequences, views: Views, view: int, *, entropy: bool = False) -> Reading:
    """Read one view, each field ``[B, T]`` and zero where it does not score; only rows that score anything are read,
    and only their scored positions meet the vocabulary.

    Block-causal models read the pair of shown and clean tokens, so that a block sees the clean tokens before it.
    """
    scored_BT = views.scored_BKT[:, view]
    row_N = scored_BT.any(1).nonzero()[:, 0]
    if not len(row_N):
        zeros_BT = torch.zeros(scored_BT.shape, device=scored_BT.device)
        return Reading(zeros_BT, zeros_BT if entropy else None, zeros_BT if entropy else None)
    ids_BT = seqs.ids_BT if views.ids_BKT is None else views.ids_BKT[:, view]
    ids_NT, scored_NT = ids_BT[row_N], scored_BT[row_N]
    shown_NT = ids_NT if views.shown_BKT is None else views.shown_BKT[row_N, view]
    shown_NT = torch.where(views.masked_BKT[row_N, view], model.spec.mask_id, shown_NT)
    clean_NT = ids_NT if model.spec.attention == "block_causal" else None
    states_MD = model.states(shown_NT, seqs.lengths_B[row_N], scored_NT, clean_NT=clean_NT)
    reading = model.read(states_MD, ids_NT[scored_NT], views.temperature, entropy=entropy)
    return reading.map(lambda value_M: _scatter(value_M, scored_BT))


@torch.no_grad()
def score_views(model: "Scorer", seqs: Sequences, views: Views) -> Scores:
    """Score every view without a graph."""
    readings = [score_view(model, seqs, views, view, entropy=True) for view in range(views.masked_BKT.shape[1])]
    logp_BKT, entropy_BKT, _ = (torch.stack(parts, dim=1) for parts in zip(*readings, strict=True))
    return Scores(logp_BKT, entropy_BKT)


def token_sum(logp_BKT: Tensor, views: Views) -> Tensor:
    """Weighted sum over views, per token: ``[B, T]``."""
    return (logp_BKT * views.weight_BKT.to(logp_BKT.dtype)).sum(1)


def elbo(logp_BKT: Tensor, views: Views) -> Tensor:
    """Evidence lower bound ``[B]`` in nats: the weighted sum over views and tokens."""
    return token_sum(logp_BKT, views).sum(-1)


def power_mean(logp_BKT: Tensor, weight_BKT: Tensor, beta: float) -> Tensor:
    """1/beta log sum_k w_k p_k^beta of each token over its views, ``[B, T]``; zero where all weights are."""
    seen_BT = (weight_BKT != 0).any(1)
    power_BKT = beta * logp_BKT + weight_BKT.to(logp_BKT.dtype).log()
    # a token that no view weighs has no finite value, and must leave no NaN in the gradient
    power_BKT = torch.where(seen_BT[:, None], power_BKT, 0.0)
    return torch.where(seen_BT, power_BKT.logsumexp(1) / beta, 0.0)


def _scatter(values_M: Tensor, where_BT: Tensor) -> Tensor:
    """Put gathered values back at their positions; masked_scatter keeps the graph."""
    zeros_BT = torch.zeros(where_BT.shape, dtype=values_M.dtype, device=values_M.device)
    return zeros_BT.masked_scatter(where_BT, values_M)
