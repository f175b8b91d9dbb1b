"""MDPO: goldens of the authors' code, loops written from the paper, real rollouts, and learning."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_golden_objectives import _batch, _cases, _close, _mean_and_gradient

from cells import masked_run, ones
from dare.algorithms.mdpo import MDPO, step_advantage, top_steps
from dare.batch import Batch
from dare.config import load_config
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.likelihood import score_views
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.judge import Judge
from dare.train.rl import train_rl
from dare.train.run import open_run
from dare.types import Outcome
from rows import UNEQUAL, keys, pack, text_rollouts
from toy import toy_model

SPEC = toy_model().spec


def test_step_advantage(shared):
    compared = 0
    for case, settings, given, authors, release in _cases(shared, "mdpo"):
        if "step_rewards" not in given:
            continue
        reward_BS = given["step_rewards"]
        group_B = given.get("uid", torch.zeros(len(reward_BS), dtype=torch.int64))
        if authors:
            assert _close(step_advantage(reward_BS, group_B), authors["advantages"]), case
        # the release leaves a group of one as it is; here it teaches nothing
        several_B = (group_B[:, None] == group_B).sum(1) > 1
        found_BS = step_advantage(reward_BS, group_B, floor=settings.get("epsilon", 1e-6))
        assert _close(found_BS[several_B], release["advantages"][several_B]), case
        assert not found_BS[~several_B].any(), case
        compared += 1
    assert compared >= 3


def test_top_steps(shared):
    cases = [(case, *rest) for case, *rest in _cases(shared, "mdpo") if case.startswith("top_k")]
    for case, settings, given, authors, release in cases:
        found_K = top_steps(given["advantages"], settings["k"])
        assert torch.equal(found_K, authors["steps_by_score"]), case
        assert torch.equal(found_K.sort().values, release["steps_sorted"]), case
    assert cases


def test_loss(shared):
    compared = 0
    for case, settings, given, authors, release in _cases(shared, "mdpo"):
        if "canvas_mask" not in given:
            continue
        masked_BT, logp_BKT = given["canvas_mask"], given["logps"][:, None]
        old_BKT = logp_BKT if settings["num_iterations"] == 1 else given["old_logps"][:, None]
        # the factor R / |m| is part of the credit, the confidence of the weight
        share_B = settings["max_completion_length"] / masked_BT.double().sum(1).clamp_min(1)
        reference_BKT, advantage_B = given["ref_logps"][:, None], given["advantages"] * share_B
        batch = _batch(masked_BT[:, None].double(), masked_BT, old_BKT, reference_BKT, advantage_B)
        batch = replace(batch, views=replace(batch.views, loss_weight_BKT=given["confidence"][:, None]))
        clip = {"clip_low": settings["epsilon"], "clip_high": settings["epsilon"]}
        algorithm = MDPO(kl_coef=settings["beta"], **clip).build(SPEC)
        mean, grad_BKT, metrics = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, release["pg_loss"]) and _close(grad_BKT[:, 0], release["grad_logps"]), case
        assert _close(metrics.get("kl", 0.0), release["kl"]), case
        assert _close(metrics["clip_fraction"], release["clipfrac"]), case
        if settings["model_type"] != "llada":  # the authors' joint shift of a Dream model drops its first position
            batch = replace(batch, views=_without_first(batch.views))
            mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        # the authors add 1e-4 to both counts
        assert _close(mean, authors["loss"], 1e-3) and _close(grad_BKT[:, 0], authors["grad_logps"], 1e-3), case
        compared += 1
    assert compared >= 4


def _without_first(views):
    later_T = torch.arange(views.weight_BKT.shape[-1]) > 0
    return replace(views, weight_BKT=views.weight_BKT * later_T)


REWARDS = torch.tensor(
    [
        [0.0, 0.5, 0.25, 1.0, 1.0, 0.0],
        [0.5, 0.0, 1.0, 0.25, 0.5, 1.0],
        [0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    ],
    dtype=torch.float64,
)
"""The second group has no advantage anywhere."""


def _outcome():
    """``UNEQUAL`` decoded from left to right, with made-up predictions; response lengths 3, 6, 1, 2 and 4."""
    rollouts = text_rollouts(pack(UNEQUAL, SPEC.pad_id, extra=1))
    generator = torch.Generator().manual_seed(3)
    size = (len(REWARDS), 6, rollouts.seqs.ids_BT.shape[1])
    words_BST = torch.randint(0, 3, size, generator=generator)  # EOS among them, in the middle too
    step_S1 = torch.arange(6)[:, None]
    masked_BST = rollouts.seqs.response_BT[:, None] & (rollouts.unmask_step_BT[:, None] >= step_S1)
    rollouts = replace(
        rollouts,
        group_B=torch.tensor([0, 0, 0, 1, 1]),
        predictions_BST=torch.where(masked_BST, words_BST, rollouts.seqs.ids_BT[:, None]),
        confidence_BST=torch.rand(size, generator=generator),
    )
    return Outcome(rollouts, REWARDS[:, -1], 0.0, REWARDS)


def _naive_advantage(row, step):
    def score(row):
        rewards = REWARDS[row].tolist()
        later = rewards[step + 1 :] or rewards[-1:]
        return rewards[step] - (rewards[step - 1] if step else 0) + 1 + sum(later) / len(later)

    scores = [score(other) for other in ([0, 1, 2] if row < 3 else [3, 4])]
    mean = sum(scores) / len(scores)
    spread = math.sqrt(sum((one - mean) ** 2 for one in scores) / (len(scores) - 1))
    return (score(row) - mean) / (spread + 1e-4)


def _naive_loss(outcome, settings, logp, old, reference, steps):
    """Loops over rows, chosen steps and positions."""
    rollouts, total, count = outcome.rollouts, 0.0, 0
    for row, (prompt, response) in enumerate(UNEQUAL):
        for view, step in enumerate(steps):
            masked = range(len(prompt) + step, len(prompt) + len(response))
            for place in masked:
                credit = _naive_advantage(row, step) * len(response) / len(masked)
                difference = logp[row, view, place] - old[row, view, place]
                ratio = difference.exp() if difference < 20 else math.exp(20) * (1 + difference - 20)
                inside = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
                apart = logp[row, view, place] - reference[row, view, place]
                loss = -torch.minimum(ratio * credit, inside * credit) + settings.kl_coef * apart**2 / 2
                total = total + float(rollouts.confidence_BST[row, step, place]) * loss
                count += 1
    return total / count


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("shift", ["inside", "clip", 50.0, -50.0])
def test_loops_from_the_paper(count, shift):
    settings, outcome = MDPO(trained_steps=count, kl_coef=0.3), _outcome()
    algorithm = settings.build(SPEC)
    views = algorithm.views(outcome, 0)
    passes = [len(response) for _, response in UNEQUAL]
    sums = [sum(abs(_naive_advantage(row, step)) for row in range(5) if step < passes[row]) for step in range(6)]
    steps = sorted(range(6), key=lambda step: -sums[step])[:count]
    generator = torch.Generator().manual_seed(5)
    logp, old, reference = (
        -torch.rand(views.weight_BKT.shape, dtype=torch.float64, generator=generator) for _ in range(3)
    )
    if shift == "clip":
        old = logp - math.log1p(settings.clip_high)
    elif shift != "inside":
        old = logp - shift
    advantage_BKT = algorithm.credit(outcome, views)
    batch = Batch(outcome.rollouts.seqs, views, outcome.rollouts.counted_BT, old, reference, advantage_BKT)
    mean, grad_BKT, metrics = _mean_and_gradient(algorithm, logp, batch)
    leaf = logp.clone().requires_grad_(True)
    wanted = _naive_loss(outcome, settings, leaf, old, reference, steps)
    assert _close(mean, wanted.detach(), 1e-10)
    if shift != "clip":  # at the very edge either side may be taken
        assert _close(grad_BKT, torch.autograd.grad(wanted, leaf)[0], 1e-10)
    assert grad_BKT.isfinite().all() and all(math.isfinite(value) for value in metrics.values())
    assert not grad_BKT[~views.scored_BKT].any()


def test_gradient_where_the_behaviour_policy_is_the_live_one():
    outcome, algorithm = _outcome(), MDPO(kl_coef=0).build(SPEC)
    views = algorithm.views(outcome, 0)
    advantage_BKT = algorithm.credit(outcome, views)
    batch = Batch(outcome.rollouts.seqs, views, outcome.rollouts.counted_BT, advantage_BKT=advantage_BKT)
    grad_BKT = _mean_and_gradient(algorithm, -torch.rand(views.weight_BKT.shape).double(), batch)[1]
    assert views.loss_weight_BKT is not None
    wanted_BKT = -advantage_BKT * views.loss_weight_BKT * views.scored_BKT / views.scored_BKT.sum()
    assert _close(grad_BKT, wanted_BKT, 1e-12)
    assert not grad_BKT[3:].any() and grad_BKT[:3].any()


def test_what_is_scored_is_what_a_pass_predicted():
    model, settings = toy_model(vocab_size=9), MDPO(temperature=0.7, trained_steps=3)
    decoding = DecodingConfig(max_new_tokens=6, block_size=3, steps=4, temperature=0.7, stop_at_eos=False)
    group_B = torch.zeros(2, dtype=torch.int64)
    rollouts = denoise(model, [[1, 2], [3]], decoding, keys(2), group_B, predictions=True)
    reward_BS = torch.rand(2, rollouts.predictions_BST.shape[1], dtype=torch.float64)
    outcome = Outcome(rollouts, reward_BS[:, -1], 0.0, reward_BS)
    views = settings.build(model.spec).views(outcome, 0)
    logp_BKT = score_views(model, rollouts.seqs, views).logp_BKT
    step_K = top_steps(step_advantage(reward_BS, group_B), 3)
    for row, length in enumerate([2, 1]):
        for view, step in enumerate(step_K.tolist()):
            open_T = rollouts.unmask_step_BT[row] >= step
            canvas_T = torch.where(open_T, model.spec.mask_id, rollouts.seqs.ids_BT[row])
            hidden_TD = model.hidden(canvas_T[None], rollouts.seqs.lengths_B[row : row + 1])[0]
            logp_TV = (model.head(hidden_TD) / 0.7).log_softmax(-1)
            for place in range(length, length + 6):
                token = int(rollouts.predictions_BST[row, step, place])
                wanted = float(logp_TV[place, token].detach()) if open_T[place] else 0.0
                assert float(logp_BKT[row, view, place]) == pytest.approx(wanted, abs=1e-10)


def test_the_published_settings_load(tmp_path):
    path = Path(__file__).parents[2] / "configs" / "algorithm" / "mdpo.yaml"
    config = load_config(RLConfig, [str(path), f"output={tmp_path}", "model.path=tiny:masked"])
    assert config.algorithm == MDPO()


def _layers(tmp_path):
    return masked_run(tmp_path / "run", "name: mdpo, temperature: 1.0, trained_steps: 2", "eos: never", 20)


def test_every_prediction_is_graded_and_each_text_once(tmp_path, monkeypatch):
    graded = []
    monkeypatch.setitem(registry.REWARDS, "ones", lambda text, **_: graded.append(text) or ones(text))
    config = load_config(RLConfig, _layers(tmp_path))
    run = open_run(config, answers=False, updates_per_step=1)
    rows = [item for item in next(iter(run.batches()))[1][:2] for _ in range(2)]
    group_B, prompts = torch.tensor([0, 0, 1, 1]), [item.prompt_ids for item in rows]
    rollouts = run.engine.rollout(prompts, config.decoding, keys(4), group_B, predictions=True)
    judge = Judge(config, run.grader, run.tokenizer, run.engine.spec.eos_ids, rows)
    _, grades = judge.grade(rollouts)
    before = len(graded)
    reward_BS = judge.outcome(rollouts, grades, 0.0).step_reward_BS
    texts = set()
    for step in range(reward_BS.shape[1]):
        seqs = replace(rollouts.seqs, ids_BT=rollouts.predictions_BST[:, step])
        passed = replace(rollouts, seqs=seqs, counted_BT=seqs.through_eos(run.engine.spec.eos_ids))
        found, wanted = judge.grade(passed)
        texts |= set(zip(group_B.tolist(), found, strict=True))
        assert reward_BS[:, step].tolist() == [one.total for one in wanted]
    calls = len(graded) - before - reward_BS.numel()
    assert calls == len(texts - set(zip(group_B.tolist(), judge.grade(rollouts)[0], strict=True)))


def test_running_confidence_divergence_and_more_updates_in_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.REWARDS, "ones", ones)
    extra = ["decoding={remask: running_confidence, eos: free, steps: 4}", "algorithm={kl_coef: 0.02, updates: 2}"]
    folder = train_rl(load_config(RLConfig, [*_layers(tmp_path), *extra, "train={batch: 2, steps: 2}"]))
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        assert all(math.isfinite(value) for value in json.loads(line).values() if isinstance(value, float))
    assert json.loads(line)["kl"] > 0


@pytest.mark.parametrize(
    "layer, message",
    [
        ("model.path=tiny:block", "block_causal attention"),
        ("decoding.cache=prefix", "set cache=none"),
        ("decoding.temperature=0.5", "decode at the same temperature"),
        ("decoding.rule=entropy", "must be a probability"),
        ("decoding.eos=last", "must be a probability"),
        ("algorithm.kl_in=reward", "has no effect in mdpo"),
    ],
)
def test_refusals(tmp_path, layer, message):
    with pytest.raises(Exception, match=message):
        load_config(RLConfig, [*_layers(tmp_path), layer])
