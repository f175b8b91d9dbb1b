"""Advantages over denoising steps and the value loss: the authors' and verl's arrays, and loops over single tokens."""

from dataclasses import replace

import pytest
import torch
from test_golden_objectives import _cases, _close

from dare.algorithms.gae import at_the_end, discounted, gae, step_order, whiten
from dare.algorithms.value import CriticConfig, Value, explained
from dare.batch import Batch
from dare.diffusion.trajectory import trajectory
from dare.meter import Meter
from dare.types import Outcome, Sequences, Views
from rows import text_rollouts


def _value_cases(shared):
    for case, settings, given, authors, _ in _cases(shared, "tracerl"):
        if case.startswith("value_"):
            start = settings["start_pos"]
            cut = {name: x[:, start:] if name != "row_sample" and x.dim() == 2 else x for name, x in given.items()}
            cut |= {name: given[name] for name in ("step_map", "token_reward")}  # these have no prompt
            yield case, settings, cut, {name: x[:, start:] if x.dim() == 2 else x for name, x in authors.items()}


def test_step_advantages_and_returns_of_the_authors(shared):
    """Pads trained by ``post_num`` count as the authors count them: those in budget are tokens like any other."""
    compared = 0
    for case, settings, given, authors in _value_cases(shared):
        row_N, trained_NT = given["row_sample"], given["p_mask"]
        text_BT = given["input_ids"] != settings["pad_id"]
        budget_BT = text_BT | ((~text_BT).long().cumsum(1) <= (settings["post_num"] or 0))
        width, scored_NT = trained_NT.shape[1], trained_NT & budget_BT[row_N]
        seqs = Sequences(given["input_ids"], torch.ones_like(text_BT), torch.full((len(text_BT),), width))
        rollouts = replace(text_rollouts(seqs), unmask_step_BT=given["step_map"], counted_BT=budget_BT)
        views = trajectory(rollouts, block_size=settings["block_size"])
        step_BT = step_order(views, settings["block_size"])
        value_BT = _per_sample(given["old_values"] * scored_NT, row_N)
        vector = settings["use_vector_reward"]
        reward_BT = given["token_reward"] if vector else at_the_end(given["outcome_reward"], step_BT)
        advantage_BT = gae(reward_BT, value_BT, step_BT, gamma=settings["gamma"], lam=settings["lam"])
        return_BT = discounted(reward_BT, step_BT, gamma=settings["gamma"])
        assert _close(advantage_BT[row_N] * trained_NT, authors["advantages"]), case
        assert _close(return_BT[row_N] * trained_NT, authors["returns"]), case
        compared += 1
    assert compared == 4


def test_value_loss_of_the_authors(shared):
    """Every row is a view here; they divide by the canvas, this project by the tokens."""
    compared = 0
    for case, _, given, authors in _value_cases(shared):
        trained_NT = given["p_mask"]
        rows, width = trained_NT.shape
        seqs = Sequences(torch.zeros(rows, width).long(), torch.ones_like(trained_NT), torch.full((rows,), width))
        views = Views(trained_NT[:, None], trained_NT[:, None].double(), torch.ones(rows, 1, width))
        old_BKT, return_BKT = given["old_values"][:, None], authors["returns"][:, None]
        batch = Batch(seqs, views, torch.ones_like(trained_NT), value_BKT=old_BKT, return_BKT=return_BKT)
        leaf_BKT = given["values"][:, None].clone().requires_grad_(True)
        value = Value(target=None, clip=0.2)
        loss, _ = value(leaf_BKT, batch)
        (grad_BKT,) = torch.autograd.grad(loss / width / rows, leaf_BKT)
        assert _close(loss.detach() / width / rows, authors["value_loss_eps0.2"]), case
        assert _close(grad_BKT[:, 0], authors["grad_values"]), case
        assert value.units(batch) == int(trained_NT.sum())
        compared += 1
    assert compared == 4


def test_one_token_per_step_is_the_gae_of_verl(shared):
    """verl walks through padding too, and whitens with the mask."""
    compared = 0
    for case, settings, given, _, release in _cases(shared, "advantages"):
        if not case.startswith("verl_gae"):
            continue
        reward_BT, value_BT, mask_BT = given["token_level_rewards"], given["values"], given["response_mask"].bool()
        step_BT = torch.arange(reward_BT.shape[1]).expand_as(reward_BT)
        advantage_BT = gae(reward_BT, value_BT, step_BT, gamma=settings["gamma"], lam=settings["lam"])
        assert _close(advantage_BT + value_BT, release["returns"]), case
        # verl adds 1e-8 to the number of tokens
        assert _close(whiten(advantage_BT, mask_BT), release["advantages_whitened"], 1e-7), case
        compared += 1
    assert compared == 2


STEPS = {
    "several": [[-1, 0, 2, 1, 1, 0, -1], [-1, -1, 3, 2, 1, 0, 4]],
    "one token": [[-1, -1, 0, -1, -1, -1, -1], [0, 0, 1, 1, 1, 2, 3]],
    "one step": [[0, 0, 0, 0, 0, 0, 0], [-1, 0, 0, 0, -1, -1, -1]],
    "none": [[-1, -1, -1, -1, -1, -1, -1], [-1, 1, 0, -1, -1, -1, -1]],
    "nothing at all": [[-1, -1, -1, -1, -1, -1, -1], [-1, -1, -1, -1, -1, -1, -1]],
}


@pytest.mark.parametrize("gamma, lam", [(1.0, 1.0), (0.9, 0.7), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("name", STEPS)
def test_against_loops(name, gamma, lam):
    step_BT, generator = torch.tensor(STEPS[name]), torch.Generator().manual_seed(0)
    reward_BT, value_BT = (torch.randn(2, 7, dtype=torch.float64, generator=generator) for _ in range(2))
    found_BT = gae(reward_BT, value_BT, step_BT, gamma=gamma, lam=lam)
    sums_BT = discounted(reward_BT, step_BT, gamma=gamma)
    for b, steps in enumerate(STEPS[name]):
        for j, step in enumerate(steps):
            wanted = _advantage(reward_BT[b], value_BT[b], steps, j, gamma, lam) if step >= 0 else 0.0
            total = _return(reward_BT[b], steps, j, gamma) if step >= 0 else 0.0
            assert float(found_BT[b, j]) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
            assert float(sums_BT[b, j]) == pytest.approx(total, rel=1e-12, abs=1e-12)


def test_steps_are_numbered_block_by_block_without_gaps():
    """Two blocks of three; what follows the end is decided but not counted, so its steps do not exist."""
    seqs = Sequences(torch.zeros(2, 6).long(), torch.ones(2, 6).bool(), torch.full((2,), 6))
    rollouts = replace(
        text_rollouts(seqs),
        unmask_step_BT=torch.tensor([[1, 0, 1, 4, 3, 2], [0, 0, 0, 1, 2, 3]]),
        counted_BT=torch.tensor([[1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 0, 0]]).bool(),
    )
    views = trajectory(rollouts, block_size=3)
    assert step_order(views, 3).tolist() == [[1, 0, 1, 3, -1, 2], [0, 0, 0, 1, -1, -1]]
    assert step_order(trajectory(rollouts)).tolist() == [[1, 0, 1, 3, -1, 2], [0, 0, 0, 1, -1, -1]]


@pytest.mark.parametrize("target", ["sum", "lambda"])
def test_credit_of_a_critic_that_knows_the_outcome_is_zero(target):
    seqs = Sequences(torch.zeros(3, 5).long(), torch.ones(3, 5).bool(), torch.full((3,), 5))
    rollouts = text_rollouts(seqs)
    views, reward_B = trajectory(rollouts, shrink=2), torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
    value_BKT = views.scored_BKT * reward_B[:, None, None]
    choices = CriticConfig(target=target).choices(None)
    outcome = Outcome(rollouts, reward_B, value_BKT=value_BKT)
    assert choices["credit"](outcome, views).abs().max() == 0
    assert torch.equal(choices["value"].target(outcome, views), reward_B[:, None, None].expand(3, 1, 5))


def test_explained_variance():
    generator = torch.Generator().manual_seed(0)
    return_BKT, noise_BKT = torch.randn(2, 40, 1, 6, dtype=torch.float64, generator=generator)
    where_BKT = torch.rand(40, 3, 6, generator=generator) < 0.5
    for scale in (0.0, 1.0):
        meter = Meter()
        value_BKT = (return_BKT + scale * noise_BKT).expand(40, 3, 6) + 0.7
        explained(value_BKT, return_BKT, where_BKT, meter)
        error_M, return_M = (x.expand(40, 3, 6)[where_BKT] for x in (scale * noise_BKT, return_BKT))
        assert meter.mean()["value/explained_variance"] == pytest.approx(float(1 - error_M.var() / return_M.var()))
    meter = Meter()
    explained(torch.zeros(2, 1, 3), torch.ones(2, 1, 3), torch.ones(2, 1, 3).bool(), meter)
    assert meter.mean() == {}


def _per_sample(rows_NT, row_N):
    return torch.zeros(int(row_N.max()) + 1, rows_NT.shape[1], dtype=rows_NT.dtype).index_add(0, row_N, rows_NT)


def _mean(values, steps, step):
    members = [float(v) for v, s in zip(values, steps, strict=True) if s == step]
    return sum(members) / len(members)


def _advantage(rewards, values, steps, j, gamma, lam):
    """The sum over later steps of (gamma lam)^l times their temporal-difference errors."""
    last, here = max(steps), steps[j]

    def expected(step):
        return _mean(values, steps, step) if step <= last else 0.0

    total = float(rewards[j]) + gamma * expected(here + 1) - float(values[j])
    for step in range(here + 1, last + 1):
        error = _mean(rewards, steps, step) + gamma * expected(step + 1) - expected(step)
        total += (gamma * lam) ** (step - here) * error
    return total


def _return(rewards, steps, j, gamma):
    later = range(steps[j] + 1, max(steps) + 1)
    return float(rewards[j]) + sum(gamma ** (step - steps[j]) * _mean(rewards, steps, step) for step in later)
