"""Losses and gradients of the algorithm authors' own code on fixed arrays."""

from dataclasses import replace

import pytest
import torch
from test_golden_objectives import _batch, _cases, _close, _mean_and_gradient

from dare.algorithms.bgpo import BGPO, lower_bound
from dare.algorithms.cj_grpo import CJGRPO
from dare.algorithms.ebpo import EBPO
from dare.algorithms.espo import ESPO
from dare.algorithms.justgrpo import JustGRPO
from dare.algorithms.wd1 import WD1, pull_and_push
from dare.batch import Batch
from dare.diffusion.trajectory import trajectory
from dare.types import Sequences
from rows import outcome, text_rollouts
from toy import toy_model

SPEC = toy_model().spec


def test_wd1(shared):
    algorithm = WD1().build(SPEC)
    for case, _, given, authors, _ in _cases(shared, "wd1"):
        group_B = torch.zeros(len(given["advantages"]), dtype=torch.int64)
        weight_B = pull_and_push(given["advantages"], group_B, spread=1.0)
        assert _close(weight_B / len(group_B), authors["w_plus"] - authors["w_minus"]), case
        logp_BKT = given["logps"][:, None]
        batch = _batch(torch.ones_like(logp_BKT), given["completion_mask"], None, None, weight_B)
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, authors["loss"]) and _close(grad_BKT[:, 0], authors["grad_logps"]), case


def test_bgpo(shared):
    algorithm, compared = BGPO().build(SPEC), 0
    for case, settings, given, _, release in _cases(shared, "bgpo"):
        if settings.get("clip") is not None or "logps" not in given or "loss" not in release:
            continue
        mask_BKT, length = given["mask"], settings["length_norm"]
        weight_BKT = mask_BKT * (length / given["k"][..., None].double() / mask_BKT.shape[1])
        # the old estimate, put on the first masked position of each view
        first_BKT = mask_BKT & (mask_BKT.long().cumsum(-1) == 1)
        old_BKT = first_BKT * (given["old_elbo_per_token"] * length / mask_BKT.shape[1])[..., None]
        old_BKT = torch.where(first_BKT, old_BKT / weight_BKT.where(first_BKT, torch.ones_like(weight_BKT)), 0.0)
        counted_BT = torch.ones_like(mask_BKT[:, 0])
        batch = _batch(weight_BKT, counted_BT, old_BKT, None, given["advantages"])
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, given["logps"], batch)
        assert _close(mean, release["loss"]) and _close(grad_BKT, release["grad_logps"]), case
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("shift", [-2.0, -1.0, 0.0, 1.0, 500.0])
@pytest.mark.parametrize("advantage", [-1.5, 0.0, 2.0])
def test_the_bound_of_bgpo_holds_and_stays_finite(shift, advantage):
    log_ratio = torch.tensor(shift, dtype=torch.float64, requires_grad=True)
    credit = torch.tensor(advantage, dtype=torch.float64)
    loss = lower_bound(log_ratio, credit)
    loss.backward()
    assert loss.isfinite() and log_ratio.grad.isfinite()
    if shift <= 1:
        assert float(loss.detach()) >= float(-credit * log_ratio.detach().exp()) - 1e-12
    if shift == 0:
        assert float(log_ratio.grad) == -advantage


def test_espo(shared):
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "espo"):
        if not settings.get("reduce_var") or "old_elbo" not in given or case == "coupled_k1_edges":
            continue
        length, mask_BKT = settings["R"], given["mask"]
        k_BK1, pairs = given["k"][..., None].double(), mask_BKT.shape[1]
        halves = [
            m * (length + 1) / (2 * pairs * n.clamp_min(1)) for m, n in ((mask_BKT, k_BK1), (~mask_BKT, length - k_BK1))
        ]
        logp_BKT, weight_BKT = given["logps"].transpose(0, 1).flatten(1, 2), torch.stack(halves, 1).flatten(1, 2)
        old_BKT, reference_BKT = (_as_score(given[name], weight_BKT) for name in ("old_elbo", "ref_elbo"))
        batch = _batch(weight_BKT, torch.ones_like(mask_BKT[:, 0]), old_BKT, reference_BKT, given["advantages"])
        clip = {"clip_low": settings["epsilon_low"], "clip_high": settings["epsilon_high"]}
        algorithm = ESPO(kl_coef=settings["beta"], **clip).build(SPEC)
        assert _close(algorithm.unit.reduce(logp_BKT, batch.views)[:, 0], authors["elbo"]), case
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, authors["loss"]), case
        assert _close(grad_BKT, authors["grad_logps"].transpose(0, 1).flatten(1, 2)), case
        compared += 1
    assert compared >= 1


def test_cj_grpo(shared):
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "cj_grpo"):
        if case not in ("mdlm_equal_counts", "mdlm_mu1"):
            continue  # with ragged counts the authors' code pools tokens, equation 11 does not
        rows, width = given["step_map"].shape
        seqs = Sequences(torch.zeros(rows, width).long(), torch.ones(rows, width).bool(), torch.full((rows,), width))
        views = trajectory(replace(text_rollouts(seqs), unmask_step_BT=given["step_map"]))
        logp_BKT = given["logps"].transpose(0, 1)
        old_BKT = logp_BKT if settings["num_iterations"] == 1 else given["old_logps"].transpose(0, 1)
        reference_BKT = given["ref_logps"].transpose(0, 1)
        batch = replace(
            _batch(views.weight_BKT, seqs.response_BT, old_BKT, reference_BKT, given["advantages"]), views=views
        )
        clip = {"clip_low": settings["epsilon"], "clip_high": settings["epsilon"]}
        algorithm = CJGRPO(kl_coef=settings["beta"], **clip).build(SPEC)
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, authors["loss"]) and _close(grad_BKT, authors["grad_logps"].transpose(0, 1)), case
        compared += 1
    assert compared >= 1


def test_cj_grpo_ragged_follows_equation_11():
    step_BT = torch.tensor([[0, 0, 1, 2, 2, 2], [0, 1, 1, 1, 1, 2]])
    seqs = Sequences(torch.zeros(2, 6).long(), torch.ones(2, 6).bool(), torch.full((2,), 6))
    rollouts = replace(text_rollouts(seqs), unmask_step_BT=step_BT)
    views = trajectory(rollouts)
    old_BKT, logp_BKT = -torch.rand(2, 3, 6).double(), -torch.rand(2, 3, 6).double()
    advantage_B = torch.tensor([1.0, -0.5], dtype=torch.float64)
    batch = replace(_batch(views.weight_BKT, seqs.response_BT, old_BKT, None, advantage_B), views=views)
    total = 0.0
    for row in range(2):
        for step in range(3):
            losses = []
            for place in (step_BT[row] == step).nonzero()[:, 0].tolist():
                ratio = float((logp_BKT[row, step, place] - old_BKT[row, step, place]).exp())
                credit = float(advantage_B[row])
                losses.append(-min(ratio * credit, min(max(ratio, 0.5), 1.5) * credit))
            total += sum(losses) / len(losses) / 3 / 2
    assert float(_mean_and_gradient(CJGRPO(kl_coef=0).build(SPEC), logp_BKT, batch)[0]) == pytest.approx(
        total, rel=1e-12
    )


def test_ebpo(shared):
    spec, compared = toy_model(attention="block_causal", block_size=3).spec, 0
    for case, settings, given, _, release in _cases(shared, "ebpo"):
        count, kl = settings["N"], settings["kl"]
        share_K = given.get("timestep_weights", torch.full((count,), 1 / count, dtype=torch.float64))
        weight_BKT = given["weight"] * given["mask"] * share_K[:, None]
        old_BKT, reference_BKT = (_as_score(given[name], weight_BKT) for name in ("old_elbo", "ref_elbo"))
        batch = _batch(weight_BKT, given["response_mask"], old_BKT, reference_BKT, given["advantages"])
        clip = {"clip_low": settings["clip_low"], "clip_high": settings["clip_high"]}
        algorithm = EBPO(kl_coef=settings["beta"], **({"kl": kl} if kl else {}), **clip).build(spec)
        mean, grad_BKT, metrics = _mean_and_gradient(algorithm, given["logps"], batch)
        assert _close(mean, release["loss"]) and _close(grad_BKT, release["grad_logps"]), case
        assert _close(metrics["clip_fraction"], release["clipfrac"]), case
        compared += 1
    assert compared >= 4


def test_justgrpo(shared):
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "justgrpo"):
        if "loss" not in authors:
            continue  # the release divides and masks in other ways
        rows, length = given["logps"].shape
        prompt = given["generated_ids"].shape[1] - length
        response_BT = (torch.arange(prompt + length) >= prompt).expand(rows, -1)
        seqs = Sequences(given["generated_ids"], response_BT, torch.full((rows,), prompt + length))
        algorithm = JustGRPO(temperature=settings["temperature"]).build(SPEC)
        views = algorithm.views(outcome(text_rollouts(seqs)), 0)
        mask_id = int(authors["ar_states"].max())
        for view, states_BT in enumerate(authors["ar_states"]):
            assert torch.equal(torch.where(views.masked_BKT[:, view], mask_id, seqs.ids_BT), states_BT), case
        logp_BKT = torch.zeros(views.weight_BKT.shape, dtype=torch.float64)
        logp_BKT[views.scored_BKT] = given["logps"].T.flatten()[_order(views.scored_BKT, rows, length)]
        batch = Batch(seqs, views, response_BT, advantage_BKT=given["advantages"][:, None, None])
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        # the authors add 1e-5 to the number of samples with an advantage
        taught = int((given["advantages"] != 0).sum())
        scale = settings["gain"] * taught / (float(given["valid_samples"]) + 1e-5)
        assert _close(mean * scale, authors["loss"]), case
        assert _close(grad_BKT.sum(1)[:, prompt:] * scale, authors["grad_logps"]), case
        compared += 1
    assert compared >= 2


def _order(scored_BKT, rows, length):
    """Where each scored place, in row, view, column order, lies in a [length, rows] table."""
    row_M, view_M, _ = scored_BKT.nonzero(as_tuple=True)
    return view_M * rows + row_M


def _as_score(elbo_B, weight_BKT):
    """Log-probabilities whose weighted sum is a given estimate: all of it at the first scored place."""
    flat_BN = weight_BKT.flatten(1)
    first_B1 = (flat_BN != 0).long().argmax(1, keepdim=True)
    logp_BN = torch.zeros_like(flat_BN).scatter(1, first_B1, elbo_B[:, None] / flat_BN.gather(1, first_B1))
    return logp_BN.view_as(weight_BKT)
