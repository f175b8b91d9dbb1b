"""Estimators of KL(policy || reference) from d = log policy - log reference at sampled tokens.

The three of J. Schulman, "Approximating KL divergence" (2020).
"""

from collections.abc import Callable

from torch import Tensor

from dare.algorithms.losses import bounded_exp

KL = Callable[[Tensor], Tensor]


def k1(difference: Tensor) -> Tensor:
    """d: unbiased, of either sign; in a loss its gradient is zero in expectation, so it belongs in the reward."""
    return difference


def k2(difference: Tensor) -> Tensor:
    """d² / 2: never negative, and its gradient is unbiased."""
    return difference.square() / 2


def k3(difference: Tensor) -> Tensor:
    """exp(-d) + d - 1: unbiased and never negative."""
    return bounded_exp(-difference) + difference - 1


KLS: dict[str, KL] = {estimate.__name__: estimate for estimate in (k1, k2, k3)}
