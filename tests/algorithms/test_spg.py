"""SPG: the authors' values, a loop-written evaluation, and what its bounds are."""

import math
from dataclasses import replace

import pytest
import torch
from test_golden_objectives import _batch, _cases, _close, _mean_and_gradient

from dare.algorithms.spg import SPG, sandwich
from dare.diffusion.prefix import block_prefix
from dare.types import Views
from rows import UNEQUAL, keys, outcome, pack, repeat, text_rollouts
from toy import toy_model

SPEC = toy_model().spec
MIX = {"elbo": 0.0, "eubo": 1.0}


def test_goldens(shared):
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "spg"):
        if settings["logp_estimation"] == "zero":
            continue  # an ablation that drops rejected answers
        counted_BT = given["completion_mask"].bool()
        views = _views(given["mask"].bool() & counted_BT[:, None], counted_BT)
        batch = _batch(views.weight_BKT, counted_BT, None, None, given["advantages"])
        batch = replace(batch, views=views)
        mix = MIX.get(settings["logp_estimation"], settings["mix_weight"])
        algorithm = SPG(beta=settings["eubo_beta"], mix=mix).build(SPEC)
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, given["logps"], batch)
        assert _close(mean, authors["loss"]) and _close(grad_BKT, authors["grad_logps"]), case
        compared += 1
    assert compared >= 6


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_loss_equals_the_formula_written_as_loops(scale):
    torch.manual_seed(1)
    counted_BT = torch.arange(6) < torch.tensor([6, 3, 1, 5])[:, None]
    scored_BKT = (torch.rand(4, 3, 6) < 0.6) & counted_BT[:, None]
    scored_BKT[2, 0, 0], scored_BKT[3] = True, False  # a one-token answer; an answer that no view scores
    logp_BKT = -torch.rand(4, 3, 6, dtype=torch.float64) * scale
    advantage_B = torch.tensor([1.2, -0.7, -1.0, 0.5], dtype=torch.float64)
    beta, mix, total, tokens = 1.5, 0.3, 0.0, 0
    for row, length in enumerate(counted_BT.sum(1).tolist()):
        lower, terms = 0.0, {}
        for view in range(3):
            places = scored_BKT[row, view].nonzero()[:, 0].tolist()
            for place in places:
                value = float(logp_BKT[row, view, place])
                lower += value / len(places) / 3
                terms.setdefault(place, []).append(beta * value - math.log(len(places) / length))
        upper = sum(max(t) + math.log(sum(math.exp(x - max(t)) for x in t) / 3) for t in terms.values())
        upper /= max(1, len(terms)) * beta
        credit = float(advantage_B[row])
        score = lower if credit > 0 else mix * upper + (1 - mix) * lower
        total -= length * credit * score
        tokens += length
    batch = _batch(scored_BKT.double(), counted_BT, None, None, advantage_B)
    batch = replace(batch, views=_views(scored_BKT, counted_BT))
    mean, grad_BKT, _ = _mean_and_gradient(SPG(beta=beta, mix=mix).build(SPEC), logp_BKT, batch)
    assert float(mean) == pytest.approx(total / tokens, rel=1e-10)
    assert grad_BKT.isfinite().all() and not grad_BKT[3].any()


def test_one_view_makes_the_upper_bound_a_shifted_lower_one():
    counted_BT = torch.ones(1, 4, dtype=torch.bool)
    views = _views(torch.tensor([[[True, True, False, True]]]), counted_BT)
    logp_BKT = -torch.rand(1, 1, 4, dtype=torch.float64)
    leaf = logp_BKT.clone().requires_grad_(True)
    lower, upper = sandwich(leaf, views, beta=1.5, mix=1.0)[0]
    grads = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in (lower, upper)]
    assert torch.allclose(*grads)


@pytest.mark.parametrize("kind", [{"attention": "full"}, {"attention": "block_causal", "block_size": 2}], ids=str)
def test_block_prefix(kind):
    spec = toy_model(**kind).spec
    seqs = pack(UNEQUAL, SPEC.pad_id)
    rollouts = text_rollouts(seqs)
    views = SPG(block_size=2, draws=3, prompt_rate=0.0).build(spec).views(outcome(rollouts), 0)
    response_BKT = seqs.response_BT[:, None]
    assert not (views.masked_BKT & ~response_BKT).any() and (views.scored_BKT <= views.masked_BKT).all()
    total_BK = views.weight_BKT.sum(-1)
    assert torch.allclose(total_BK, torch.full_like(total_BK, 1 / 3))
    for row, (prompt, answer) in enumerate(UNEQUAL):
        origin = 0 if spec.block_size else len(prompt)
        blocks = [(column - origin) // 2 for column in range(len(prompt), len(prompt) + len(answer))]
        for masked_T in views.masked_BKT[row]:
            hidden = masked_T[len(prompt) : len(prompt) + len(answer)].tolist()
            first = min(block for block, is_hidden in zip(blocks, hidden, strict=True) if is_hidden)
            # nothing before the block, all behind it
            assert all(h for block, h in zip(blocks, hidden, strict=True) if block > first)
        assert len({tuple(m.tolist()) for m in views.masked_BKT[row]}) >= min(3, len(set(blocks)))


def test_the_size_of_the_masked_subset_is_uniform_and_the_prompt_noise_has_its_rate():
    seqs = repeat(pack([([0] * 8, [1] * 4)], SPEC.pad_id), 4000)
    views = block_prefix(
        seqs,
        keys(4000),
        counted_BT=seqs.response_BT,
        block_size=4,
        from_prompt=False,
        rates=(0, 1),
        prompt_rate=0.15,
        count=1,
    )
    counts = torch.bincount((views.masked_BKT & seqs.response_BT[:, None]).sum(-1)[:, 0], minlength=5)
    assert counts[0] == 0 and (counts[1:] - 1000).abs().max() < 120
    rate = (views.masked_BKT[:, 0] & ~seqs.response_BT)[:, :8].double().mean()
    assert float(rate) == pytest.approx(0.15, abs=0.01)


def test_settings_without_effect_are_refused():
    with pytest.raises(ValueError, match=r"kl_coef=0\.1 has no effect in spg"):
        SPG(kl_coef=0.1)


def _views(scored_BKT, counted_BT):
    size_BK1 = scored_BKT.sum(-1, keepdim=True)
    weight_BKT = scored_BKT.double() / size_BK1.clamp_min(1) / scored_BKT.shape[1]
    rate_BKT = (size_BK1.double() / counted_BT.sum(1)[:, None, None].clamp_min(1)).expand(scored_BKT.shape)
    return Views(scored_BKT, weight_BKT, rate_BKT)
