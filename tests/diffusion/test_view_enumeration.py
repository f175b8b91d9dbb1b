from itertools import permutations, product
from math import factorial

import numpy as np
import pytest
import torch

from dare.diffusion.likelihood import elbo, score_view, score_views, token_sum
from dare.diffusion.views import MIN_RATE, coupled, random_rate
from rows import keys, one_view, pack, repeat
from toy import toy_model

PROMPT, RESPONSE = [1, 0], [0, 1, 1]
KEYS = 4000


def _expect(integrand, low, high):
    """Average of a polynomial of t over (low, high)."""
    node, weight = np.polynomial.legendre.leggauss(16)
    return sum(0.5 * w * integrand(low + (high - low) * (x + 1) / 2) for x, w in zip(node, weight, strict=True))


def _subsets(size):
    return [np.array(bits) for bits in product([0, 1], repeat=size)]


def _logps(model):
    """log p(x_i | everything outside S) for every subset S of the response and every i in S."""
    subsets = _subsets(len(RESPONSE))
    seqs = repeat(pack([(PROMPT, RESPONSE)], model.spec.pad_id), len(subsets))
    masked_BT = torch.zeros(seqs.ids_BT.shape, dtype=torch.bool)
    masked_BT[:, len(PROMPT) :] = torch.tensor(np.array(subsets)).bool()
    with torch.no_grad():
        logp_BT = score_view(model, seqs, one_view(masked_BT), 0).logp
    return {tuple(s.tolist()): row[len(PROMPT) :].numpy() for s, row in zip(subsets, logp_BT, strict=True)}


def _random_rate_value(logps, low):
    def integrand(t):
        return sum(t ** (sum(s) - 1) * (1 - t) ** (len(s) - sum(s)) * row.sum() for s, row in logps.items() if sum(s))

    return _expect(integrand, low, 1.0)


def _agrees(sample_N, exact):
    error = sample_N.std() / len(sample_N) ** 0.5
    assert abs(float(sample_N.mean()) - exact) < 4 * error
    assert error < 0.05 * abs(exact)  # or the comparison says nothing


def test_elbo_over_all_masks_is_the_average_over_all_orders():
    logps, size = _logps(toy_model()), len(RESPONSE)
    chain = 0.0
    for order in permutations(range(size)):
        hidden = np.ones(size, dtype=int)
        for position in order:
            chain += logps[tuple(hidden.tolist())][position] / factorial(size)
            hidden[position] = 0
    assert _random_rate_value(logps, 0.0) == pytest.approx(chain, rel=1e-12)
    assert _random_rate_value(logps, MIN_RATE) == pytest.approx(chain, rel=size * MIN_RATE)


def test_random_rate_averages_to_the_enumerated_elbo():
    model = toy_model()
    seqs = repeat(pack([(PROMPT, RESPONSE)], model.spec.pad_id), KEYS)
    views = random_rate(seqs, keys(KEYS))
    estimate_N = elbo(score_views(model, seqs, views).logp_BKT, views)
    _agrees(estimate_N, _random_rate_value(_logps(model), MIN_RATE))


@pytest.mark.parametrize("prompt", [[], PROMPT])
def test_random_rate_draws_every_mask_with_its_probability_and_weight(prompt):
    size = len(RESPONSE)
    seqs = repeat(pack([(prompt, RESPONSE)], 3), KEYS)
    views = random_rate(seqs, keys(KEYS, "masks"))
    response_NR = views.masked_BKT[:, 0, len(prompt) :].long()
    counts = torch.bincount(response_NR @ torch.tensor([4, 2, 1]), minlength=8).double()
    by_count = [_expect(lambda t, k=k: t**k * (1 - t) ** (size - k), MIN_RATE, 1) for k in range(size + 1)]
    expected = torch.tensor([by_count[s.sum()] for s in _subsets(size)]) * KEYS
    assert ((counts - expected) ** 2 / expected).sum() < 7 + 5 * 14**0.5
    assert torch.equal(views.rate_BKT, views.rate_BKT[:, :, :1].expand_as(views.rate_BKT))
    assert torch.allclose(views.weight_BKT, views.masked_BKT / views.rate_BKT, rtol=1e-6)


def test_coupled_averages_to_its_enumerated_value():
    model = toy_model()
    logps, size, low, high = _logps(model), len(RESPONSE), 0.2, 0.8

    def integrand(t):
        value = logps[(1,) * size].sum() / 2
        for s, row in logps.items():
            complement = logps[tuple(1 - x for x in s)]
            value += t ** sum(s) * (1 - t) ** (size - sum(s)) * (row.sum() / (2 * t) + complement.sum() / (2 * (1 - t)))
        return value

    seqs = repeat(pack([(PROMPT, RESPONSE)], model.spec.pad_id), KEYS)
    views = coupled(seqs, keys(KEYS))
    score_NT = token_sum(score_views(model, seqs, views).logp_BKT, views)
    _agrees(score_NT.sum(1), _expect(integrand, low, high))
