from dataclasses import replace
from functools import partial

import pytest
import torch

from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.kl import k3
from dare.algorithms.losses import clipped, is_clipped
from rows import rl_batch
from toy import toy_model

ALGORITHMS = {"d1": D1().build(toy_model().spec), "coupled_grpo": CoupledGRPO().build(toy_model().spec)}
LOSS = partial(clipped, low=0.2, high=0.28)

algorithms = pytest.mark.parametrize("name", ALGORITHMS)


def _value_and_gradient(algorithm, logp_BKT, batch):
    leaf_BKT = logp_BKT.clone().requires_grad_(True)
    loss, meter = algorithm(leaf_BKT, batch)
    return loss.detach(), torch.autograd.grad(loss, leaf_BKT)[0], meter.mean()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "cut"),
    [
        (1.2, 2.0, -2.4, -2.4, False),
        (1.4, 2.0, -2.56, 0.0, True),
        (1.4, -2.0, 2.8, 2.8, False),
        (0.7, 2.0, -1.4, -1.4, False),
        (0.7, -2.0, 1.6, 0.0, True),
        (0.9, -2.0, 1.8, 1.8, False),
        (3.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_clip_by_hand(ratio, advantage, loss, slope, cut):
    log_ratio = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_(True)
    credit = torch.tensor([[advantage]], dtype=torch.float64)
    value = LOSS(log_ratio, credit)
    value.sum().backward()
    assert value.item() == pytest.approx(loss, rel=1e-12)
    assert log_ratio.grad.item() == pytest.approx(slope, rel=1e-12)
    assert bool(is_clipped(log_ratio, credit, low=0.2, high=0.28)) == cut


def test_k3_is_never_negative_and_averages_to_the_divergence():
    policy_V = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    reference_V = torch.tensor([0.2, 0.3, 0.1, 0.4], dtype=torch.float64)
    difference_V = policy_V.log() - reference_V.log()
    assert (k3(difference_V) >= 0).all() and k3(torch.zeros(1)) == 0
    divergence = (policy_V * difference_V).sum()
    assert torch.allclose((policy_V * k3(difference_V)).sum(), divergence, rtol=1e-12)


@algorithms
def test_at_ratio_one_the_gradient_is_the_policy_gradient(name):
    algorithm = ALGORITHMS[name]
    batch = rl_batch(toy_model(), algorithm)
    _, grad_BKT, metrics = _value_and_gradient(algorithm, batch.old_BKT, _no_reference(batch))
    counted_B1T = batch.counted_BT[:, None]
    wanted_BKT = -batch.advantage_BKT * batch.views.weight_BKT.double() * counted_B1T
    assert torch.allclose(grad_BKT, wanted_BKT, rtol=1e-12)
    assert metrics["ratio"] == 1 and metrics["clip_fraction"] == 0


@algorithms
@pytest.mark.parametrize("shift", [-1e3, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_ratios_stay_finite(name, shift, dtype):
    algorithm = ALGORITHMS[name]
    batch = rl_batch(toy_model(), algorithm)
    logp_BKT = (batch.old_BKT + shift).to(dtype)
    loss, grad_BKT, _ = _value_and_gradient(algorithm, logp_BKT, batch)
    assert torch.isfinite(loss) and torch.isfinite(grad_BKT).all()


@algorithms
def test_row_order_changes_nothing(name):
    algorithm = ALGORITHMS[name]
    batch, order = rl_batch(toy_model(), algorithm), torch.tensor([3, 0, 4, 2, 1])
    logp_BKT = batch.old_BKT * 0.9
    loss, grad_BKT, metrics = _value_and_gradient(algorithm, logp_BKT, batch)
    moved, moved_grad_BKT, moved_metrics = _value_and_gradient(algorithm, logp_BKT[order], batch.select(order))
    assert torch.allclose(moved, loss, rtol=1e-12) and algorithm.units(batch.select(order)) == algorithm.units(batch)
    assert torch.equal(moved_grad_BKT, grad_BKT[order])
    assert moved_metrics == pytest.approx(metrics, rel=1e-12)


@algorithms
def test_uncounted_tokens_have_no_say(name):
    algorithm = ALGORITHMS[name]
    batch = rl_batch(toy_model(), algorithm, extra=2)
    logp_BKT = batch.old_BKT * 0.9
    uncounted_BT = ~batch.counted_BT[:, None]
    assert (uncounted_BT & batch.views.scored_BKT).any()
    loss, grad_BKT, _ = _value_and_gradient(algorithm, logp_BKT, batch)
    other, other_grad_BKT, _ = _value_and_gradient(algorithm, torch.where(uncounted_BT, -777.0, logp_BKT), batch)
    assert torch.equal(loss, other) and torch.equal(grad_BKT, other_grad_BKT)
    assert (grad_BKT[uncounted_BT.expand_as(grad_BKT)] == 0).all()


def test_units_are_counted_tokens():
    batch = rl_batch(toy_model(), ALGORITHMS["d1"])
    assert ALGORITHMS["d1"].units(batch) == int(batch.counted_BT.sum()) < int(batch.seqs.response_BT.sum())


def _no_reference(batch):
    return replace(batch, reference_BKT=batch.old_BKT)
