"""Likelihood estimators by name: which views to draw, how their scores become one number, and what that estimates.

The *bound* is the evidence lower bound of the any-order sampler: the mean, over all orders in which a response may be
decoded one token per pass, of its log-probability along that order. A block-causal model writes its blocks from left
to right, and orders differ inside the blocks only. ``MIN_RATE`` aside, every estimator of kind "bound" is unbiased.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from dare.diffusion.counts import antithetic_count, block_count, coupled_count
from dare.diffusion.counts import random_count as strata
from dare.diffusion.likelihood import elbo, power_mean
from dare.diffusion.trajectory import left_to_right as prefixes
from dare.diffusion.trajectory import trajectory as transitions
from dare.diffusion.views import ViewSampler, fully_masked
from dare.diffusion.views import random_rate as bernoulli
from dare.errors import DareError
from dare.types import Rollouts, Sequences, Views

Kind = Literal["bound", "surrogate", "upper", "exact", "trajectory"]


@dataclass(frozen=True)
class Estimator:
    """``views`` of one draw; ``combine`` their token scores into one number per sequence, in nats.

    ``kind``: what it estimates (a lower bound, a surrogate without guarantee, an upper bound of the lower one, the
    exact log-likelihood of left-to-right decoding, or that of a recorded order). ``forwards`` model passes per draw, at
    most; None: as many as there are positions or steps. ``drawn`` False: nothing is random.
    """

    name: str
    kind: Kind
    views: ViewSampler
    forwards: int | None
    combine: Callable[[Tensor, Views], Tensor] = elbo
    drawn: bool = True


@dataclass(frozen=True)
class Budget:
    """What estimators are built from: ``count`` views per draw where there is a choice; ``beta`` of the upper bound;
    ``block_size`` of a block-causal model; ``rollouts`` the record of a trajectory.
    """

    count: int = 8
    beta: float = 1.5
    block_size: int | None = None
    rollouts: Rollouts | None = None

    def __post_init__(self) -> None:
        if self.count < 2 or self.count % 2:
            raise DareError(f"count={self.count}: pairs of views need an even number of at least 2")

    @property
    def pairs(self) -> int:
        """Pairs of views per draw."""
        return self.count // 2


def mean_field(_: Budget) -> Estimator:
    """Everything masked, one pass (d1, arXiv 2504.12216, section 3.2; without its prompt noise).

    Bias: drops what response tokens tell about each other, so neither a lower nor an upper bound. Variance: none.
    """
    return Estimator("mean_field", "surrogate", partial(fully_masked, prompt_rate=0.0), 1, drawn=False)


def random_rate(_: Budget) -> Estimator:
    """Independent coin flips at one random rate t, weight 1/t (LLaDA, arXiv 2502.09992, equation 3).

    Bias: about L x ``MIN_RATE`` of the value at most. Variance: the largest; a small t weighs few tokens heavily. One
    pass.
    """
    return Estimator("random_rate", "bound", bernoulli, 1)


def random_count(budget: Budget) -> Estimator:
    """Exactly k_j of L tokens, the k_j stratified, weight L / k_j (LLaDA, arXiv 2502.09992, appendix B.4).

    Bias: none. Variance: without that of the number of masked tokens and, over ``count`` views, most of that of k.
    """
    return Estimator("random_count", "bound", partial(strata, count=budget.count), budget.count)


def coupled(budget: Budget) -> Estimator:
    """Pairs of a k-subset and its complement, k uniform in 0..L (ESPO, arXiv 2512.03759, section 4).

    Bias: none. Variance: every token is scored once per pair. One pass of a pair is saved where a half is empty.
    """
    return Estimator("coupled", "bound", partial(coupled_count, pairs=budget.pairs), 2 * budget.pairs)


def antithetic(budget: Budget) -> Estimator:
    """Pairs of a k-subset and its mirror image of L + 1 - k tokens (``antithetic_count``; antithetic variates).

    Bias: none. Variance: below independent subsets where a large k and a small one err in opposite directions.
    """
    return Estimator("antithetic", "bound", partial(antithetic_count, pairs=budget.pairs), 2 * budget.pairs)


def block(budget: Budget) -> Estimator:
    """Every block masks its own number of tokens, stratified over blocks and views (EBPO, arXiv 2602.08676).

    Block-causal models only: elsewhere the blocks behind a token would be partly visible, and no order of decoding
    shows it that. Bias: none. Variance: errors of different blocks offset each other.
    """
    if budget.block_size is None:
        raise DareError("estimator 'block' needs a block-causal model; use random_count")
    sampler = partial(block_count, block_size=budget.block_size, count=budget.count)
    return Estimator("block", "bound", sampler, budget.count)


def eubo(budget: Budget) -> Estimator:
    """The Rényi-type sum over tokens of 1/beta log E[w p^beta] (SPG, arXiv 2510.09541, section 3.2).

    The expectation is never below the evidence lower bound (Jensen), grows with ``beta``, and bounds the likelihood of
    the any-order sampler from above for beta >= L (Hölder), not in general for less. Bias of a draw: downward, from
    the logarithm of a mean; it vanishes as ``count`` grows. Views are those of ``antithetic``, so that every token
    has one.
    """
    sampler, combine = partial(antithetic_count, pairs=budget.pairs), partial(log_power_mean, beta=budget.beta)
    return Estimator("eubo", "upper", sampler, 2 * budget.pairs, combine)


def left_to_right(budget: Budget) -> Estimator:
    """The chain rule, each token given those before it (JustGRPO, arXiv 2601.15165, section 4).

    Exact for left-to-right decoding, one token per pass; another order has another likelihood. One pass per position,
    or per position of a block for block-causal models.
    """

    def views(seqs: Sequences, _: Tensor) -> Views:
        return prefixes(seqs, seqs.response_BT, block_size=budget.block_size)

    return Estimator("left_to_right", "exact", views, budget.block_size, drawn=False)


def trajectory(budget: Budget) -> Estimator:
    """The transitions of a recorded rollout (TraceRL, arXiv 2509.06949, section 4.3), through its first EOS.

    Exact for the recorded order and grouping into steps, which is one sample of the orders the decoder might take;
    tokens of one step are independent. One pass per step, or per step of a block.
    """
    rollouts = budget.rollouts
    if rollouts is None:
        raise DareError("estimator 'trajectory' reads a recorded rollout; give it one (Budget.rollouts)")

    def views(seqs: Sequences, _: Tensor) -> Views:
        if not torch.equal(seqs.ids_BT, rollouts.seqs.ids_BT):
            raise DareError("estimator 'trajectory' was built for other rows; build it from the rollouts of these")
        return transitions(rollouts, block_size=budget.block_size)

    return Estimator("trajectory", "trajectory", views, None, drawn=False)


ESTIMATORS: dict[str, Callable[[Budget], Estimator]] = {
    "mean_field": mean_field,
    "random_rate": random_rate,
    "random_count": random_count,
    "coupled": coupled,
    "antithetic": antithetic,
    "block": block,
    "eubo": eubo,
    "left_to_right": left_to_right,
    "trajectory": trajectory,
}


def log_power_mean(logp_BKT: Tensor, views: Views, *, beta: float) -> Tensor:
    """Sum over tokens of 1/beta log sum_k w_k p_k^beta, ``[B]``; a token that no view scores counts nothing."""
    return power_mean(logp_BKT, views.weight_BKT, beta).sum(1)
