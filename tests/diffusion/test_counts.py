"""Exact-count views: their weighted sums average to the enumerated evidence lower bound."""

from itertools import product
from math import comb

import pytest
import torch

from dare.diffusion.counts import coupled_count, random_count
from dare.diffusion.likelihood import elbo, score_view, score_views
from rows import keys, one_view, pack, repeat
from toy import toy_model

ROWS, PROMPT, RESPONSE = 4000, [0, 1], [1, 0, 2]


def enumerated(model):
    """Mean over k of 1..L of L / k times the mean, over subsets of k tokens, of their summed log-probability."""
    seqs, size = pack([(PROMPT, RESPONSE)], model.spec.pad_id), len(RESPONSE)
    total = 0.0
    for bits in product((False, True), repeat=size):
        if any(bits):
            masked_BT = torch.tensor([[False] * len(PROMPT) + list(bits)])
            with torch.no_grad():
                logp = float(score_view(model, seqs, one_view(masked_BT), 0)[0].sum())
            total += logp / sum(bits) / comb(size, sum(bits))
    return total


@pytest.mark.parametrize(
    "sampler", [(random_count, {"count": 1}), (random_count, {"count": 4}), (coupled_count, {"pairs": 2})]
)
def test_they_average_to_the_elbo(sampler):
    model = toy_model()
    seqs = repeat(pack([(PROMPT, RESPONSE)], model.spec.pad_id), ROWS)
    views = sampler[0](seqs, keys(ROWS), **sampler[1])
    found_N = elbo(score_views(model, seqs, views).logp_BKT, views)
    assert abs(float(found_N.mean()) - enumerated(model)) < 5 * float(found_N.std()) / ROWS**0.5 + 1e-9


def test_counts_are_uniform_and_stratified_and_never_leave_the_response():
    seqs = repeat(pack([(PROMPT, RESPONSE)], 3, extra=2), ROWS)
    views = random_count(seqs, keys(ROWS), count=3)
    assert not (views.masked_BKT & ~seqs.response_BT[:, None]).any()
    k_NK = views.masked_BKT.sum(-1)
    assert (k_NK.sort(1).values == torch.tensor([1, 2, 3])).all()
    assert (torch.bincount(k_NK[:, 0], minlength=4)[1:] / ROWS - 1 / 3).abs().max() < 0.04


def test_pairs_cover_the_response_even_when_one_half_is_empty():
    seqs = repeat(pack([(PROMPT, RESPONSE)], 3), ROWS)
    views = coupled_count(seqs, keys(ROWS), pairs=1)
    assert torch.equal(views.masked_BKT.sum(1), seqs.response_BT.long())
    assert (views.masked_BKT.sum(-1) == 0).any() and views.weight_BKT.isfinite().all()
