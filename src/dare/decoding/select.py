"""How many masked positions a step fills, and which ones."""

import torch
from torch import Tensor

from dare.decoding.config import DecodingConfig


def choose(confidence_NT: Tensor, masked_NT: Tensor, quota_N: Tensor, decoding: DecodingConfig) -> Tensor:
    """Return the masked positions to fill: each row's most confident, as many as the count rule says."""
    columns = masked_NT.any(0).nonzero()[:, 0]
    if not len(columns):
        return masked_NT
    span = slice(int(columns[0]), int(columns[-1]) + 1)
    inside_NC = masked_NT[:, span]
    sorted_NC, rank_NC = rank(confidence_NT[:, span].masked_fill(~inside_NC, -torch.inf))
    chosen_NT = torch.zeros_like(masked_NT)
    chosen_NT[:, span] = inside_NC & (rank_NC < count(sorted_NC, quota_N, decoding)[:, None])
    return chosen_NT


def doubtful(best_NT: Tensor, block_NT: Tensor, count_N: Tensor) -> Tensor:
    """Return the ``count_N`` positions of each row's block whose best confidence so far is lowest: those to mask again
    (running-confidence re-masking of MDPO, arXiv 2508.13148).
    """
    _, rank_NT = rank(-best_NT.masked_fill(~block_NT, torch.inf))
    return block_NT & (rank_NT < count_N[:, None])


def count(sorted_NC: Tensor, quota_N: Tensor, decoding: DecodingConfig) -> Tensor:
    """Return how many of each row's candidates are filled: the ``n`` most confident, at least one.

    ``sorted_NC`` confidences in falling order, -inf behind the last candidate; ``quota_N`` what the steps ask for.
    """
    if decoding.threshold is not None:
        count_N = (sorted_NC >= decoding.threshold).sum(1)
        if decoding.steps_bound is not None:
            count_N = (torch.maximum if decoding.steps_bound == "minimum" else torch.minimum)(count_N, quota_N)
    elif decoding.factor is not None:
        count_N = by_factor(sorted_NC, decoding.factor)
    elif decoding.entropy_bound is not None:
        count_N = by_entropy(sorted_NC, decoding.entropy_bound)
    else:
        count_N = quota_N
    return count_N.clamp_min(1)


def by_factor(sorted_NC: Tensor, factor: float) -> Tensor:
    """The largest n with (n + 1) (1 - c_n) < factor for it and every smaller n (Fast-dLLM, arXiv 2505.22618)."""
    rank_C = torch.arange(2, sorted_NC.shape[1] + 2, device=sorted_NC.device)
    return (rank_C * (1 - sorted_NC) < factor).long().cumprod(1).sum(1)


def by_entropy(sorted_NC: Tensor, bound: float) -> Tensor:
    """The largest n whose entropies, the greatest one left out, add up to at most ``bound`` nats (EB-sampler,
    arXiv 2505.24857, equation 9).
    """
    entropy_NC = -sorted_NC
    return (entropy_NC.cumsum(1) - entropy_NC <= bound).long().cumprod(1).sum(1)


def rank(confidence_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidences in falling order and the rank of every position; ties go to the first position."""
    sorted_NC, order_NC = confidence_NC.sort(dim=1, descending=True, stable=True)
    return sorted_NC, order_NC.argsort(dim=1)
