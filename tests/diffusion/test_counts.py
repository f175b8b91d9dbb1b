"""Exact-count views: their weighted sums average to the enumerated evidence lower bound."""

from itertools import product
from math import comb

import pytest
import torch

from dare.diffusion.counts import block_count, coupled_count, random_count
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


BLOCK = 2


def block_rows(rows):
    """The prompt fills half of the first block, the response one, two and one token of the three blocks."""
    return repeat(pack([([0], [1, 0, 2, 1])], 3, extra=2), rows)


@pytest.mark.parametrize("count", [1, 3])
def test_block_counts_weigh_every_response_token_by_one(count):
    seqs = block_rows(ROWS)
    views = block_count(seqs, keys(ROWS), block_size=BLOCK, count=count)
    assert not (views.masked_BKT & ~seqs.response_BT[:, None]).any()
    total_NT = views.weight_BKT.sum(1)
    error_T = total_NT.std(0) / ROWS**0.5
    assert ((total_NT.mean(0) - seqs.response_BT[0].double()).abs() <= 4 * error_T + 1e-12).all()
    scored = views.scored_BKT
    assert torch.allclose(views.weight_BKT[scored] * count * views.rate_BKT[scored], torch.ones(1).double())


@pytest.mark.parametrize("count", [1, 4])
def test_every_count_of_a_block_is_uniform_and_never_none(count):
    seqs = block_rows(ROWS)
    masked_NKT = block_count(seqs, keys(ROWS), block_size=BLOCK, count=count).masked_BKT
    for block, size in enumerate([1, 2, 1]):
        k_NK = masked_NKT[..., block * BLOCK : (block + 1) * BLOCK].sum(-1)
        for k_N in k_NK.T:
            share = torch.bincount(k_N, minlength=size + 1) / ROWS
            assert share[0] == 0 and (share[1:] - 1 / size).abs().max() < 0.04
        # four views of a block of two: stratified, so each count comes twice
        assert count == 1 or size == 1 or (k_NK.sum(1) == 6).all()


def test_block_counts_average_to_the_blockwise_elbo():
    model, ids = toy_model(attention="block_causal", block_size=BLOCK), [0, 1, 0, 2, 1]
    single = pack([(ids[:1], ids[1:])], model.spec.pad_id)
    exact = 0.0
    for positions in ([1], [2, 3], [4]):
        for bits in product((False, True), repeat=len(positions)):
            if any(bits):
                masked_BT = torch.zeros(1, len(ids), dtype=torch.bool)
                masked_BT[0, positions] = torch.tensor(bits)
                with torch.no_grad():
                    logp = float(score_view(model, single, one_view(masked_BT), 0)[0].sum())
                exact += logp / sum(bits) / comb(len(positions), sum(bits))
    seqs = repeat(single, ROWS)
    views = block_count(seqs, keys(ROWS), block_size=BLOCK, count=2)
    found_N = elbo(score_views(model, seqs, views).logp_BKT, views)
    assert abs(float(found_N.mean()) - exact) < 5 * float(found_N.std()) / ROWS**0.5 + 1e-9


def test_neither_padding_nor_company_moves_a_block_count():
    narrow = pack([([0], [1, 0, 2, 1]), ([1, 1, 0], [0, 1])], 3)
    wide = pack([([0], [1, 0, 2, 1]), ([1, 1, 0], [0, 1])], 3, extra=4)
    first, second = (block_count(seqs, keys(2), block_size=BLOCK, count=3) for seqs in (narrow, wide))
    assert torch.equal(first.weight_BKT, second.weight_BKT[..., : narrow.ids_BT.shape[1]])
    alone = block_count(narrow.select(slice(1, 2)), keys(2)[1:], block_size=BLOCK, count=3)
    assert torch.equal(alone.masked_BKT[0], first.masked_BKT[1])
