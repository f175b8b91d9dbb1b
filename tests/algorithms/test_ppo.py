"""PPO over denoising steps: the whole way from rewards to losses and gradients, against loops over single tokens."""

from dataclasses import replace

import pytest
import torch

from dare.algorithms.ppo import PPO
from dare.algorithms.tracerl import TraceRL
from dare.batch import Batch
from dare.config import load_config
from dare.errors import DareError
from dare.meter import Meter
from dare.train.config import RLConfig
from dare.train.lesson import lessons
from dare.types import Outcome
from rows import pack, text_rollouts, toy_engine
from toy import toy_model

FULL = toy_model().spec
BLOCK = toy_model(attention="block_causal", block_size=2).spec
ANSWERS = [([0, 1], [1, 0, 2]), ([1], [0, 2, 1, 1, 0, 2]), ([1, 0, 0, 1], [1]), ([0], [1, 1]), ([1, 1, 0], [0, 1])]
REWARDS = [1.0, 0.0, 0.5, -1.0, 0.0]


def _outcome(spec):
    """Rollouts whose steps decided two tokens each, with what a value model said."""
    seqs = pack(ANSWERS, spec.pad_id, extra=1)
    rollouts = text_rollouts(seqs)
    step_BT = torch.where(rollouts.unmask_step_BT < 0, -1, rollouts.unmask_step_BT // 2)
    rollouts = replace(rollouts, counted_BT=seqs.through_eos(spec.eos_ids), unmask_step_BT=step_BT)
    return Outcome(rollouts, torch.tensor(REWARDS, dtype=torch.float64))


def _valued(outcome, views, seed=0):
    noise_BKT = torch.randn(views.scored_BKT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return replace(outcome, value_BKT=noise_BKT * views.scored_BKT)


def _credit_by_loops(settings, outcome, block_size):
    """Advantage and return of each (row, column), by walking the steps of a response backwards."""
    gamma, lam, found, target = settings.critic.gamma, settings.critic.lam, {}, {}
    rollouts = outcome.rollouts
    for b in range(len(rollouts.group_B)):
        columns = [i for i in range(rollouts.counted_BT.shape[1]) if rollouts.counted_BT[b, i]]
        place = {i: (i // block_size if block_size else 0, int(rollouts.unmask_step_BT[b, i])) for i in columns}
        value = {i: float(outcome.value_BKT[b, :, i].sum()) for i in columns}
        next_value = next_advantage = 0.0
        for number, step in enumerate(sorted(set(place.values()), reverse=True)):
            members = [i for i in columns if place[i] == step]
            reward = REWARDS[b] if number == 0 else 0.0
            for i in members:
                found[b, i] = reward - value[i] + gamma * next_value + gamma * lam * next_advantage
                target[b, i] = found[b, i] + value[i]
            here = sum(value[i] for i in members) / len(members)
            next_advantage = reward - here + gamma * next_value + gamma * lam * next_advantage
            next_value = here
    return found, target


@pytest.mark.parametrize("spec", [FULL, BLOCK], ids=["masked", "block"])
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("critic", [{}, {"gamma": 0.9, "lam": 0.5}])
def test_credit_loss_and_gradient_against_loops(spec, whiten, critic):
    settings = PPO(whiten=whiten, critic=critic)
    algorithm, outcome = settings.build(spec), _outcome(spec)
    views = algorithm.views(outcome, 0)
    outcome = _valued(outcome, views)
    found, target = _credit_by_loops(settings, outcome, spec.block_size)
    if whiten:
        mean = sum(found.values()) / len(found)
        spread = (sum((a - mean) ** 2 for a in found.values()) / (len(found) - 1) + 1e-8) ** 0.5
        found = {place: (a - mean) / spread for place, a in found.items()}
    advantage_BKT, return_BKT = algorithm.credit(outcome, views), algorithm.value.target(outcome, views)
    assert advantage_BKT.shape == return_BKT.shape == (5, 1, views.scored_BKT.shape[2])
    for b, i in found:
        assert float(advantage_BKT[b, 0, i]) == pytest.approx(found[b, i], rel=1e-10, abs=1e-12)
        assert float(return_BKT[b, 0, i]) == pytest.approx(target[b, i], rel=1e-10, abs=1e-12)
    old_BKT, logp_BKT = (
        -torch.rand(views.scored_BKT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(s))
        for s in (1, 2)
    )
    rollouts = outcome.rollouts
    batch = Batch(rollouts.seqs, views, rollouts.counted_BT, old_BKT, None, advantage_BKT)
    leaf_BKT, other = logp_BKT.clone().requires_grad_(True), logp_BKT.clone().requires_grad_(True)
    loss = algorithm(leaf_BKT, batch)[0] / algorithm.units(batch)
    terms = []
    for b, k, i in views.scored_BKT.nonzero().tolist():
        ratio, credit = (other[b, k, i] - old_BKT[b, k, i]).exp(), found[b, i]
        terms.append(-torch.minimum(ratio * credit, ratio.clamp(0.8, 1.2) * credit))
    assert len(terms) == len(found)
    wanted = sum(terms) / len(terms)
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-10, abs=1e-12)
    grads = [torch.autograd.grad(x, leaf)[0] for x, leaf in ((loss, leaf_BKT), (wanted, other))]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spec", [FULL, BLOCK], ids=["masked", "block"])
@pytest.mark.parametrize("settings", [PPO(), TraceRL(), TraceRL(critic={})], ids=["ppo", "tracerl", "tracerl_value"])
def test_the_first_gradient_is_the_policy_gradient(settings, spec):
    algorithm, outcome = settings.build(spec), _outcome(spec)
    views = algorithm.views(outcome, 0)
    outcome = _valued(outcome, views)
    outcome = replace(outcome, rollouts=replace(outcome.rollouts, group_B=torch.zeros(5, dtype=torch.int64)))
    rollouts, advantage_BKT = outcome.rollouts, algorithm.credit(outcome, views)
    batch = Batch(rollouts.seqs, views, rollouts.counted_BT, None, None, advantage_BKT)
    leaf_BKT = torch.zeros(views.scored_BKT.shape, dtype=torch.float64, requires_grad=True)
    (grad_BKT,) = torch.autograd.grad(algorithm(leaf_BKT, batch)[0], leaf_BKT)
    weight_BKT, _ = algorithm.aggregate(algorithm.unit.weight(batch), batch)
    assert not algorithm.needs_values(batch) and advantage_BKT.abs().max() > 0.1
    torch.testing.assert_close(grad_BKT, -weight_BKT * advantage_BKT.expand_as(weight_BKT), rtol=1e-12, atol=1e-14)


def test_divergence_comes_off_the_reward_of_the_last_step():
    engine, settings = toy_engine(), PPO(kl_coef=0.3, updates=2)
    engine.keep_reference()
    engine.add_critic(1e-3)
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight += 0.05
    algorithm, outcome = settings.build(engine.spec), _outcome(engine.spec)
    batches = lessons(settings, algorithm, engine, outcome, torch.zeros(5), Meter())
    views = batches[0].views
    policy_BKT, start_BKT = (engine.score(outcome.rollouts.seqs, views, reference=r).logp_BKT for r in (False, True))
    reward_B = outcome.reward_B - 0.3 * (policy_BKT - start_BKT).sum((1, 2))
    assert (reward_B - outcome.reward_B).abs().max() > 1e-3
    step_BT = outcome.rollouts.unmask_step_BT.masked_fill(~outcome.rollouts.counted_BT, -1)
    last_BT = step_BT == step_BT.amax(1, keepdim=True)
    for batch in batches:  # a new value model says zero, so the last step's return is its reward
        torch.testing.assert_close(batch.return_BKT[:, 0][last_BT], reward_B[:, None].expand_as(last_BT)[last_BT])
    assert batches[0].old_BKT is None and batches[1].old_BKT is not None


@pytest.mark.parametrize(
    "layer, reason",
    [
        ("algorithm={name: tracerl, method: coupled, critic: {}}", "method=coupled has none"),
        ("algorithm={name: tracerl, ratio: step}", "ratio=step has no effect in tracerl"),
        ("algorithm={name: ppo, baseline: std}", "baseline=std has no effect in ppo"),
        ("algorithm={name: ppo, critic: null}", "critic=None: .* PPOCritic"),
        ("algorithm={name: ppo, critic: {lr: 0}}", "critic.lr"),
    ],
)
def test_settings_that_do_not_fit_are_refused(layer, reason):
    with pytest.raises(DareError, match=reason):
        load_config(RLConfig, ["output=x", "decoding.temperature=1.0", layer])


def test_a_change_of_one_critic_setting_keeps_the_others():
    config = load_config(
        RLConfig, ["output=x", "decoding.temperature=1.0", "algorithm={name: ppo, critic: {lr: 1e-4}}"]
    )
    assert (config.algorithm.critic.lam, config.algorithm.critic.target) == (0.95, "lambda")
