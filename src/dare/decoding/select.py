"""Commit rules: how sure the sampler is of each proposal, and which masked positions it fills at this step."""

from collections.abc import Callable

import torch
from torch import Tensor

from dare.errors import DareError


def propose(logits_MV: Tensor, uniform_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return a token per position drawn from softmax(logits / temperature), and the log-softmax at temperature 1.

    ``temperature`` 0 takes the arg-max. The draw inverts the cumulative distribution in float64, one uniform per
    position, so it is exact to rounding for any vocabulary and needs no V random numbers.
    """
    if not bool(torch.isfinite(logits_MV.amax(-1)).all()):
        raise DareError("the model returned NaN or infinite logits while decoding; the weights are broken or diverged")
    logp_MV = torch.log_softmax(logits_MV.float(), -1)
    if temperature == 0:
        return logits_MV.argmax(-1), logp_MV
    cumulative_MV = torch.softmax(logits_MV.double() / temperature, -1).cumsum(-1)
    target_M1 = uniform_M[:, None] * cumulative_MV[:, -1:]
    token_M = torch.searchsorted(cumulative_MV, target_M1, right=True)[:, 0]
    return token_M.clamp_max(logits_MV.shape[1] - 1), logp_MV


def low_confidence(logp_MV: Tensor, token_M: Tensor, uniform_M: Tensor) -> Tensor:
    """Probability of the proposed token at temperature 1 (LLaDA, arXiv 2502.09992, appendix B.2)."""
    return logp_MV.gather(-1, token_M[:, None])[:, 0].exp()


def entropy(logp_MV: Tensor, token_M: Tensor, uniform_M: Tensor) -> Tensor:
    """Negative entropy of the distribution (Dream, arXiv 2508.15487)."""
    return (logp_MV.exp() * logp_MV).nan_to_num(0.0).sum(-1)


def random(logp_MV: Tensor, token_M: Tensor, uniform_M: Tensor) -> Tensor:
    """A uniform number: commit in random order (MDLM, arXiv 2406.07524)."""
    return uniform_M.float()


Confidence = Callable[[Tensor, Tensor, Tensor], Tensor]
RULES: dict[str, Confidence] = {
    "low_confidence": low_confidence,
    "entropy": entropy,
    "random": random,
    "threshold": low_confidence,
}


def commit(confidence_BT: Tensor, candidates_BT: Tensor, quota_B: Tensor, threshold: float | None) -> Tensor:
    """Return the positions to fill: the ``quota_B`` most confident candidates of each row, or with a threshold every
    candidate at or above it and always the best one, so that each step makes progress (Fast-dLLM, arXiv 2505.22618).
    """
    ranked_BT = confidence_BT.masked_fill(~candidates_BT, -torch.inf)
    # a stable order breaks ties by position, so a row's choice cannot depend on its batch
    rank_BT = ranked_BT.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    chosen_BT = rank_BT < quota_B[:, None] if threshold is None else (rank_BT == 0) | (ranked_BT >= threshold)
    return chosen_BT & candidates_BT
