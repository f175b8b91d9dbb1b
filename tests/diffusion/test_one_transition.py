from dataclasses import replace

import pytest
import torch

from dare.diffusion import trajectory as module
from dare.diffusion.likelihood import elbo, score_views
from dare.diffusion.trajectory import left_to_right, one_transition, trajectory
from rows import UNEQUAL, keys, pack, text_rollouts
from toy import toy_model

GRID = 60
"""Draws that lie evenly: every number of transitions up to 6 divides it, so their mean is the expectation."""

kinds = pytest.mark.parametrize("kind", [{}, {"attention": "block_causal", "block_size": 2}], ids=["full", "block"])


def evenly_drawn(model, seqs, step_BT, monkeypatch):
    total_B = torch.zeros(len(step_BT), dtype=torch.float64)
    for place in range(GRID):
        monkeypatch.setattr(
            module, "uniform", lambda key_B, count, u=(place + 0.5) / GRID: torch.full((len(key_B), count), u)
        )
        views = one_transition(seqs, step_BT, keys(len(step_BT)), block_size=model.spec.block_size)
        assert views.masked_BKT.shape[1] == 1
        total_B += elbo(score_views(model, seqs, views).logp_BKT, views) / GRID
    return total_B


@kinds
def test_it_averages_to_the_chain_rule(kind, monkeypatch):
    model = toy_model(**kind)
    seqs = pack(UNEQUAL, model.spec.pad_id, extra=1)
    all_views = left_to_right(seqs, seqs.response_BT, block_size=model.spec.block_size)
    exact_B = elbo(score_views(model, seqs, all_views).logp_BKT, all_views)
    step_BT = torch.arange(seqs.ids_BT.shape[1]).expand_as(seqs.ids_BT)
    assert torch.allclose(evenly_drawn(model, seqs, step_BT, monkeypatch), exact_B, rtol=1e-10)


@kinds
def test_it_averages_to_the_whole_record(kind, monkeypatch):
    model = toy_model(**kind)
    seqs = pack(UNEQUAL, model.spec.pad_id, extra=1)
    noise_BT = torch.rand(seqs.ids_BT.shape, generator=torch.Generator().manual_seed(1))
    step_BT = torch.where(seqs.response_BT, (noise_BT * 3).long() * 5, -1)  # some decided together, numbers with gaps
    rollouts = replace(text_rollouts(seqs), unmask_step_BT=step_BT)
    all_views = trajectory(rollouts, block_size=model.spec.block_size)
    exact_B = elbo(score_views(model, seqs, all_views).logp_BKT, all_views)
    assert torch.allclose(evenly_drawn(model, seqs, step_BT, monkeypatch), exact_B, rtol=1e-10)


def test_draws_are_even_and_what_was_never_decided_is_masked_and_not_scored():
    rows = 3000
    seqs = pack([([0], [0, 1, 1, 2])] * rows, 3)
    step_BT = torch.tensor([[-1, 7, 3, 3, -1]] * rows)
    views = one_transition(seqs, step_BT, keys(rows))
    late_B = views.scored_BKT[:, 0, 1]
    assert float(late_B.double().mean()) == pytest.approx(0.5, abs=0.04)
    assert views.masked_BKT[late_B, 0].unique(dim=0).tolist() == [[False, True, False, False, True]]
    assert views.masked_BKT[~late_B, 0].unique(dim=0).tolist() == [[False, True, True, True, True]]
    assert views.weight_BKT[~late_B, 0].unique(dim=0).tolist() == [[0, 0, 2, 2, 0]]
    assert set(views.rate_BKT[late_B, 0, 1].tolist()) == {0.5}


def test_a_row_ignores_company_and_padding():
    key_B = keys(len(UNEQUAL))
    wide, narrow = (pack(UNEQUAL, 3, extra) for extra in (5, 0))
    first, second = (
        one_transition(s, torch.arange(s.ids_BT.shape[1]).expand_as(s.ids_BT), key_B, block_size=2)
        for s in (wide, narrow)
    )
    assert torch.equal(first.trim(narrow.ids_BT.shape[1]).weight_BKT, second.weight_BKT)
