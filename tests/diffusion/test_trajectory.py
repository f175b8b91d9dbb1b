"""A stored rollout replays: every state that the decoder passed through, and the probability of what it then did."""

import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.likelihood import score_views
from dare.diffusion.trajectory import replay, trajectory
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.meter import Meter
from dare.models.checkpoint import load_checkpoint
from dare.train.mismatch import replay_one_step
from rows import keys
from toy import toy_model

KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": 4}}
PROMPTS = [[0], [1, 2, 3, 0, 1], [2, 1, 0]]
ONCE = {
    "one by one": {},
    "steps": {"steps": 4},
    "threshold": {"threshold": 0.3},
    "random": {"rule": "random", "steps": 6},
    "early end": {"stop_at_eos": True},
    "no cache": {"cache": "none", "steps": 7},
}
REWRITING = {
    "remask": {"remask": "running_confidence", "steps": 7},
    "edit": {"threshold": 0.5, "edit_threshold": 0.2, "max_post_steps": 3},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def decoded(model, **settings):
    decoding = DecodingConfig(
        **{"max_new_tokens": 11, "block_size": 4, "temperature": 1.0, "stop_at_eos": False, **settings}
    )
    return denoise(model, PROMPTS, decoding, keys(3), torch.arange(3))


def all_passes(rollouts, model):
    step_BK = torch.arange(int(rollouts.forwards_B.max())).expand(len(PROMPTS), -1)
    return replay(rollouts, step_BK, model.spec.mask_id)


@kinds
@pytest.mark.parametrize("settings", ONCE)
def test_every_pass_replays_with_ratio_one(kind, settings):
    model = toy_model(vocab_size=12, **KINDS[kind])
    rollouts = decoded(model, **ONCE[settings])
    views = all_passes(rollouts, model)
    logp_BKT = score_views(model, rollouts.seqs, views).logp_BKT
    decided_BT = rollouts.unmask_step_BT >= 0
    assert torch.equal(views.scored_BKT.sum(1), decided_BT.long())
    torch.testing.assert_close(logp_BKT.sum(1)[decided_BT], rollouts.logp_BT.double()[decided_BT], atol=1e-6, rtol=0)


@kinds
@pytest.mark.parametrize("settings", ONCE)
def test_transitions_score_each_counted_token_once(kind, settings):
    model = toy_model(vocab_size=12, **KINDS[kind])
    rollouts = decoded(model, **ONCE[settings])
    views = trajectory(rollouts, block_size=model.spec.block_size)
    counted_BT = rollouts.counted_BT & (rollouts.unmask_step_BT >= 0)
    assert torch.equal(views.scored_BKT.sum(1), counted_BT.long())
    logp_BT = score_views(model, rollouts.seqs, views).logp_BKT.sum(1)
    torch.testing.assert_close(logp_BT[counted_BT], rollouts.logp_BT.double()[counted_BT], atol=1e-6, rtol=0)
    for row in range(3):
        steps = rollouts.unmask_step_BT[row][counted_BT[row]].unique()
        # a step lies in one block, so each step is one transition of weight one
        assert float(views.loss_weight_BKT[row].sum()) == pytest.approx(len(steps))
    if kind == "block":
        assert views.masked_BKT.shape[1] <= 4 < int(rollouts.forwards_B.max()) or settings != "one by one"


def test_shrinking_merges_consecutive_steps():
    model = toy_model(vocab_size=12)
    rollouts = decoded(model)
    fine, coarse = trajectory(rollouts), trajectory(rollouts, shrink=3)
    assert fine.masked_BKT.shape[1] == 11 and coarse.masked_BKT.shape[1] == 4
    for view in range(4):
        steps = fine.scored_BKT[:, 3 * view : 3 * view + 3]
        assert torch.equal(coarse.scored_BKT[:, view], steps.any(1))
        assert torch.equal(coarse.masked_BKT[:, view], fine.masked_BKT[:, 3 * view])


@kinds
@pytest.mark.parametrize("settings", REWRITING)
def test_rewriting_decoders_replay_from_their_states(kind, settings):
    model = toy_model(vocab_size=12, seed=1, **KINDS[kind])
    rollouts = decoded(model, **REWRITING[settings])
    views = all_passes(rollouts, model)
    logp_BKT = score_views(model, rollouts.seqs, views).logp_BKT
    lasting = 0
    for row in range(3):
        for column in rollouts.seqs.response_BT[row].nonzero()[:, 0].tolist():
            step = int(rollouts.unmask_step_BT[row, column])
            if views.ids_BKT[row, step, column] == rollouts.seqs.ids_BT[row, column]:
                wanted = float(rollouts.logp_BT[row, column])
                assert views.scored_BKT[row, step, column]
                assert float(logp_BKT[row, step, column]) == pytest.approx(wanted, abs=1e-5)
                lasting += 1
    assert lasting > 8


@pytest.mark.parametrize("name", ["tiny:masked", "tiny:block"])
@pytest.mark.parametrize("settings", [{}, {"threshold": 0.1}], ids=["steps", "threshold"])
def test_the_meter_reads_one_for_an_exact_decoder_and_more_after_an_update(name, settings):
    engine = LocalEngine(load_checkpoint(name), EngineConfig(), OptimConfig(), total_updates=1)
    decoding = DecodingConfig(max_new_tokens=24, block_size=8, temperature=1.0, **settings)
    rollouts = engine.rollout([[5, 6], [7] * 9, [8]], decoding, keys(3), torch.arange(3))
    meter = Meter()
    apart_B = replay_one_step(engine, rollouts, meter)
    metrics = meter.mean()
    assert float(apart_B.max()) < 1e-5 and metrics["mismatch/ratio_max"] < 1 + 1e-5
    assert abs(metrics["mismatch/kl"]) < 1e-8 and metrics["entropy"] > 0
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(1.05)
    replay_one_step(engine, rollouts, meter := Meter())
    assert meter.mean()["mismatch/ratio_max"] > 1.001 and meter.mean()["mismatch/kl"] > 1e-7
