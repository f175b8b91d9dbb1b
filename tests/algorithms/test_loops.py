"""Losses and gradients against the formulas of the papers written as loops over rows, views and tokens."""

import math
from dataclasses import replace

import pytest
import torch

from dare.algorithms.bgpo import BGPO
from dare.algorithms.cj_grpo import CJGRPO
from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.ebpo import EBPO
from dare.algorithms.espo import ESPO
from dare.algorithms.justgrpo import JustGRPO
from dare.algorithms.unigrpo import UniGRPO
from dare.algorithms.wd1 import WD1
from dare.batch import Batch
from rows import outcome, pack, text_rollouts
from toy import toy_model

FULL = toy_model().spec
BLOCK = toy_model(attention="block_causal", block_size=2).spec
ANSWERS = [
    ([0, 1], [1, 0, 2]),
    ([1], [0, 2, 1, 1, 0, 2]),  # an end token in the middle
    ([1, 0, 0, 1], [1]),  # a single token
    ([0], [1, 1]),
    ([1, 1, 0], [0, 1, 1, 2]),
]
ADVANTAGE = [1.5, -1.0, 0.7, 0.0, -0.8]
FAR = 50.0


def ppo(log_ratio, credit, low, high):
    ratio = log_ratio.exp() if log_ratio < 20 else log_ratio
    if credit > 0:
        return -credit * (ratio if log_ratio < math.log1p(high) else 1 + high)
    return -credit * (ratio if log_ratio > math.log1p(-low) else 1 - low)


def d1(s, case):
    terms = [
        ppo(case.now[b, 0, i] - case.old[b, 0, i], case.credit[b], s.clip_low, s.clip_high)
        + s.kl_coef * k3(case.now[b, 0, i] - case.ref[b, 0, i])
        for b, i in case.tokens()
    ]
    return sum(terms) / len(terms)


def coupled_grpo(s, case):
    def score(logp, b, i):
        rate = case.views.rate_BKT[b, :, i]
        return sum(logp[b, k, i] / rate[k] for k in range(3) if case.masked[b, k, i]) / 2

    terms = []
    for b, i in case.tokens():
        now, old, ref = (score(logp, b, i) for logp in (case.now, case.old, case.ref))
        terms.append(ppo(now - old, case.credit[b], s.clip_low, s.clip_high) + s.kl_coef * k3(now - ref))
    return sum(terms) / len(terms)


def unigrpo(s, case):
    means = []
    for b in case.rows:
        mine = [i for row, i in case.tokens() if row == b and case.masked[b, 0, i]]
        terms = [
            ppo(case.now[b, 0, i] - case.old[b, 0, i], case.credit[b], s.clip_low, s.clip_high)
            + s.kl_coef * k3(case.now[b, 0, i] - case.ref[b, 0, i])
            for i in mine
        ]
        means += [sum(terms) / len(terms)] if terms else []
    return sum(means) / len(means)


def wd1(s, case):
    return -sum(case.credit[b] * case.now[b, 0, i] for b, i in case.tokens()) / len(case.rows)


def bgpo(s, case):
    total = 0.0
    for b in case.rows:
        length = len(case.response(b))
        for k in range(s.draws):
            hidden = [i for i in case.response(b) if case.masked[b, k, i]]
            delta = sum(case.now[b, k, i] - case.old[b, k, i] for i in hidden) * length / len(hidden) / length
            gain = 1 + delta if case.credit[b] >= 0 else (delta.exp() if delta < 20 else delta)
            total = total - case.credit[b] * gain / s.draws
    return total / len(case.rows)


def espo(s, case):
    def bound(logp, b):
        length, total = len(case.response(b)), 0.0
        for k in range(2 * s.pairs):
            hidden = [i for i in case.response(b) if case.masked[b, k, i]]
            total = total + sum(logp[b, k, i] for i in hidden) * (length + 1) / max(1, len(hidden)) / 2 / s.pairs
        return total

    total = 0.0
    for b in case.rows:
        now, old, ref = (bound(logp, b) for logp in (case.now, case.old, case.ref))
        length = len(case.response(b))
        total = total + ppo((now - old) / length, case.credit[b], s.clip_low, s.clip_high)
        total = total + s.kl_coef * (now - ref) ** 2 / 2 / length
    return total / len(case.rows)


def ebpo(s, case):
    def bound(logp, b):
        total = 0.0
        for k in range(s.draws):
            for block in {i // 2 for i in case.response(b)}:
                mine = [i for i in case.response(b) if i // 2 == block]
                hidden = [i for i in mine if case.masked[b, k, i]]
                total = total + len(mine) / len(hidden) * sum(logp[b, k, i] for i in hidden) / s.draws
        return total

    total = 0.0
    for b in case.rows:
        now, old, ref = (bound(logp, b) for logp in (case.now, case.old, case.ref))
        total = total + ppo(now - old, case.credit[b], s.clip_low, s.clip_high) + s.kl_coef * (now - ref) ** 2 / 2
    return total / len(case.rows)


def justgrpo(s, case):
    total, taught = 0.0, sum(credit != 0 for credit in case.credit)
    for b in case.rows:
        for place in case.response(b):
            views = [k for k in range(case.masked.shape[1]) if case.views.weight_BKT[b, k, place]]
            assert len(views) == (1 if case.batch.counted_BT[b, place] else 0)
            for k in views:
                gap = case.now[b, k, place] - case.old[b, k, place]
                total = total + ppo(gap, case.credit[b], s.clip_low, s.clip_high) / len(case.response(b))
    return total / taught


def cj_grpo(s, case):
    means = []
    for b in case.rows:
        steps = []
        for k in range(case.masked.shape[1]):
            decided = [i for row, i in case.tokens() if row == b and case.views.weight_BKT[b, k, i]]
            terms = [
                ppo(case.now[b, k, i] - case.old[b, k, i], case.credit[b], s.clip_low, s.clip_high)
                + s.kl_coef * k3(case.now[b, k, i] - case.ref[b, k, i])
                for i in decided
            ]
            steps += [sum(terms) / len(terms)] if terms else []
        means.append(sum(steps) / len(steps))
    return sum(means) / len(means)


def k3(difference):
    return ((-difference).exp() if difference > -20 else -difference) + difference - 1


CASES = {
    "d1": (D1(), d1, FULL),
    "d1_block": (D1(), d1, BLOCK),
    "coupled_grpo": (CoupledGRPO(), coupled_grpo, FULL),
    "unigrpo": (UniGRPO(), unigrpo, FULL),
    "unigrpo_block": (UniGRPO(), unigrpo, BLOCK),
    "wd1": (WD1(), wd1, FULL),
    "bgpo": (BGPO(draws=3), bgpo, FULL),
    "espo": (ESPO(kl_coef=0.1), espo, FULL),
    "ebpo": (EBPO(draws=3, kl_coef=0.05), ebpo, BLOCK),
    "justgrpo": (JustGRPO(), justgrpo, FULL),
    "justgrpo_block": (JustGRPO(), justgrpo, BLOCK),
    "cj_grpo": (CJGRPO(), cj_grpo, FULL),
}


class Case:
    """One random batch, and the names that the loops use."""

    def __init__(self, settings, spec, spread):
        seqs = pack(ANSWERS, spec.pad_id, extra=1)
        rollouts = replace(text_rollouts(seqs), counted_BT=seqs.through_eos(spec.eos_ids))
        self.algorithm = settings.build(spec)
        self.views = self.algorithm.views(outcome(rollouts), settings.updates - 1)
        generator = torch.Generator().manual_seed(3)
        shape = self.views.weight_BKT.shape
        now, old, ref = (
            -2 + torch.randn(shape, generator=generator, dtype=torch.float64) * w for w in (0.5, spread, 0.5)
        )
        scored = self.views.scored_BKT
        self.now, self.old, self.ref = (torch.where(scored, value, 0.0) for value in (now, old, ref))
        self.now.requires_grad_(True)
        self.masked, self.rows, self.credit = self.views.masked_BKT, range(len(ANSWERS)), ADVANTAGE
        advantage_BKT = torch.tensor(ADVANTAGE, dtype=torch.float64)[:, None, None]
        self.batch = Batch(seqs, self.views, rollouts.counted_BT, self.old, self.ref, advantage_BKT)

    def tokens(self):
        return self.batch.counted_BT.nonzero().tolist()

    def response(self, row):
        return self.batch.seqs.response_BT[row].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient(name, spread):
    settings, formula, spec = CASES[name]
    case = Case(settings, spec, spread)
    wanted = formula(settings, case)
    found = case.algorithm(case.now, case.batch)[0] / case.algorithm.units(case.batch)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-10, abs=1e-12)
    grads = [torch.autograd.grad(loss, case.now, retain_graph=True)[0] for loss in (found, wanted)]
    assert grads[0].abs().max() > 1e-6
    assert torch.allclose(*grads, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("edge", ["far_up", "far_down", "at_the_clip"])
@pytest.mark.parametrize("name", CASES)
def test_extreme_ratios_are_finite(name, edge):
    settings, _, spec = CASES[name]
    case = Case(settings, spec, 0.5)
    gap = {"far_up": FAR, "far_down": -FAR, "at_the_clip": math.log1p(getattr(settings, "clip_high", 0.2))}[edge]
    old_BKT = torch.where(case.views.scored_BKT, case.now.detach() - gap, 0.0)
    loss, meter = case.algorithm(case.now, replace(case.batch, old_BKT=old_BKT, reference_BKT=old_BKT))
    (grad,) = torch.autograd.grad(loss, case.now)
    assert loss.isfinite() and grad.isfinite().all() and all(math.isfinite(v) for v in meter.mean().values())


@pytest.mark.parametrize("name", CASES)
def test_nothing_counted_gives_zero(name):
    settings, _, spec = CASES[name]
    case = Case(settings, spec, 0.5)
    empty = replace(case.batch, counted_BT=torch.zeros_like(case.batch.counted_BT))
    if not case.algorithm.unit.counted(empty).any():
        loss, _ = case.algorithm(case.now, empty)
        assert loss.item() == 0 and not torch.autograd.grad(loss, case.now)[0].any()
    zero = replace(
        case.batch, advantage_BKT=torch.zeros_like(case.batch.advantage_BKT), reference_BKT=case.now.detach()
    )
    loss, _ = case.algorithm(case.now, zero)
    grad = torch.autograd.grad(loss, case.now)[0]
    assert loss.item() == 0 and grad.abs().max() < 1e-12
