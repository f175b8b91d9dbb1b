"""Estimators of KL(policy || reference) from d = log policy - log reference at sampled tokens.

The three of J. Schulman, "Approximating KL divergence" (2020).
"""

from collections.abc import Callable

from torch import Tensor

from dare.algorithms.losses import bounded_exp

KL = Callable[[Tensor], Tensor]


def k3(difference: Tensor) -> Tensor:
    """exp(-d) + d - 1: unbiased and never negative."""
    return bounded_exp(-difference) + difference - 1
