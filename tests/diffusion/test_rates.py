import math

import numpy as np
import pytest
import torch

from dare.diffusion.rates import SCHEDULES
from dare.diffusion.views import MIN_RATE, random_rate
from rows import UNEQUAL, keys, pack

RANGES = [(0.0, 1.0), (0.3, 0.8), (MIN_RATE, 1.0)]
ALPHA = {"linear": lambda u: 1 - u, "cosine": lambda u: 1 - math.cos(math.pi / 2 * (1 - u))}
"""The share that is not masked at time u, as the papers write it."""

schedules = pytest.mark.parametrize("name", SCHEDULES)


@schedules
@pytest.mark.parametrize("time", [0.1, 0.5, 0.9])
def test_the_weight_is_minus_alpha_prime_over_one_minus_alpha(name: str, time: float) -> None:
    alpha, step = ALPHA[name], 1e-6
    rate, rarity = (float(x) for x in SCHEDULES[name](torch.tensor(time, dtype=torch.float64), 0.0, 1.0))
    slope = (alpha(time + step) - alpha(time - step)) / (2 * step)
    assert rate == pytest.approx(1 - alpha(time), rel=1e-12)
    assert rarity / rate == pytest.approx(-slope / (1 - alpha(time)), rel=1e-6)


@schedules
@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("power", [0, 1, 4])
def test_whatever_the_schedule_the_estimate_is_the_mean_over_uniform_rates(
    name: str, low: float, high: float, power: int
) -> None:
    node, weight = np.polynomial.legendre.leggauss(32)
    rate, rarity = SCHEDULES[name](torch.tensor((node + 1) / 2), low, high)
    found = float((torch.tensor(weight / 2) * rarity * rate**power).sum())
    assert found == pytest.approx((high ** (power + 1) - low ** (power + 1)) / (power + 1) / (high - low), rel=1e-12)
    assert ((rate > low) & (rate < high)).all()


def test_linear_rates_are_those_of_random_rate() -> None:
    seqs = pack(UNEQUAL, 3)
    rate_B1 = random_rate(seqs, keys(len(UNEQUAL))).rate_BKT[:, 0, :1]
    time_B1 = (rate_B1 - MIN_RATE) / (1 - MIN_RATE)
    assert torch.allclose(SCHEDULES["linear"](time_B1, MIN_RATE, 1.0)[0], rate_B1, rtol=1e-15)
