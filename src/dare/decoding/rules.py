"""Which masked positions are filled first: how sure a rule is of each proposal."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Readout:
    """What a rule may look at, for M masked positions.

    ``logits_MV`` the model's, without the mask token; ``sampling_MV`` the same after temperature and filters;
    ``token_M`` the proposals; ``column_M`` where they would go; ``uniform_M`` a random number each.
    """

    logits_MV: Tensor
    sampling_MV: Tensor
    token_M: Tensor
    column_M: Tensor
    uniform_M: Tensor


def low_confidence(read: Readout) -> Tensor:
    """The model's probability of the proposal (LLaDA, arXiv 2502.09992, appendix B.2)."""
    return _probability(read.logits_MV, read.token_M)


def maskgit_plus(read: Readout) -> Tensor:
    """The sampler's probability of the proposal (MaskGIT, arXiv 2202.04200; Dream and SDAR)."""
    return _probability(read.sampling_MV, read.token_M)


def entropy(read: Readout) -> Tensor:
    """Negative entropy of the sampler's distribution, in nats (Dream, arXiv 2508.15487)."""
    logp_MV = torch.log_softmax(read.sampling_MV, -1)
    return (logp_MV.exp() * logp_MV).nan_to_num(0.0).sum(-1)


def margin(read: Readout) -> Tensor:
    """Gap between the two most probable tokens (arXiv 2502.06768, section 4)."""
    best_M2 = read.sampling_MV.topk(2, dim=-1).values
    return (best_M2 - read.sampling_MV.logsumexp(-1, keepdim=True)).exp().diff(dim=-1).neg()[:, 0]


def random(read: Readout) -> Tensor:
    """A uniform number: commit in random order (MDLM, arXiv 2406.07524)."""
    return read.uniform_M.float()


def left_to_right(read: Readout) -> Tensor:
    """The first masked positions first (the sequential order of SDAR, arXiv 2510.06303)."""
    return -read.column_M.float()


Confidence = Callable[[Readout], Tensor]
RULES: dict[str, Confidence] = {
    rule.__name__: rule for rule in (low_confidence, maskgit_plus, entropy, margin, random, left_to_right)
}


def _probability(scores_MV: Tensor, token_M: Tensor) -> Tensor:
    return scores_MV.softmax(-1).gather(-1, token_M[:, None])[:, 0]
