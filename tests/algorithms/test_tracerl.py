"""TraceRL and its random-masking baselines against arrays of the authors' code, and against loops."""

import math
from dataclasses import replace

import pytest
import torch
from test_golden_objectives import _batch, _cases, _close

from dare.algorithms.tracerl import TraceRL, random_rows
from dare.batch import Batch
from dare.diffusion.trajectory import trajectory
from dare.types import Sequences
from rows import outcome, pack, text_rollouts
from toy import toy_model

FULL = toy_model().spec
BLOCK = toy_model(attention="block_causal", block_size=2).spec


def _responses(given, settings):
    """The responses alone, since the authors count blocks from where the response starts."""
    ids_BT = given["input_ids"][:, settings["start_pos"] :]
    rows, width = ids_BT.shape
    seqs = Sequences(ids_BT, torch.ones(rows, width).bool(), torch.full((rows,), width))
    steps = {"unmask_step_BT": given["step_map"]} if "step_map" in given else {}
    return replace(text_rollouts(seqs), counted_BT=ids_BT != settings["pad_id"], **steps)


def _authors_rows(authors, settings):
    """(sample, masked [T], trained [T]) of every training row, response columns only."""
    start = settings["start_pos"]
    ids_NT = authors["extended_input_ids"] if "extended_input_ids" in authors else authors["noisy_ids"][:, start:]
    width = authors["p_mask"].shape[1] - start
    masked_NT, trained_NT = ids_NT[:, -width:] == settings["mask_id"], authors["p_mask"][:, start:]
    return list(zip(authors["row_sample"].tolist(), masked_NT, trained_NT, strict=True))


def test_steps_merge_as_the_authors_merge_them(shared):
    for case, settings, given, authors, _ in _cases(shared, "tracerl"):
        if case != "collapse":
            continue
        step_BT = given["step_map"][None]
        width = step_BT.shape[1]
        seqs = Sequences(torch.zeros(1, width).long(), torch.ones(1, width).bool(), torch.tensor([width]))
        for shrink in settings["ks"]:
            views = trajectory(replace(text_rollouts(seqs), unmask_step_BT=step_BT), shrink=shrink)
            _, order_T = authors[f"k{shrink}"].unique(return_inverse=True)
            assert torch.equal(views.scored_BKT[0].long().argmax(0), order_T)


def test_training_rows(shared):
    """Trailing pads are what follows the end: masked as decoded, never trained. So ``post_num``, how many of them to
    train, has no counterpart, and rows that train nothing else are left out on both sides.
    """
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "tracerl"):
        if not case.startswith("rows_"):
            continue
        rollouts = _responses(given, settings)
        spec = replace(BLOCK, block_size=settings["block_size"]) if "_bd_" in case else FULL
        views = TraceRL(shrink=settings["shrink"]).build(spec).views(outcome(rollouts), 0)
        text_BT = rollouts.counted_BT
        rows = [(b, m, t & text_BT[b]) for b, m, t in _authors_rows(authors, settings) if (t & text_BT[b]).any()]
        places = views.scored_BKT.any(-1).nonzero().tolist()
        for (b, k), (sample, masked_T, trained_T) in zip(places, rows, strict=True):
            assert b == sample and torch.equal(views.scored_BKT[b, k], trained_T), case
            assert torch.equal(views.masked_BKT[b, k][text_BT[b]], masked_T[text_BT[b]]), case
        compared += len(places)
    assert compared > 20


def test_losses_and_gradients(shared):
    """A row that trains nothing divides the authors' mean; they never make one, and here it does not count."""
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "tracerl"):
        if not case.startswith("loss_"):
            continue
        start = settings["start_pos"]
        logp_BKT, old_BKT, scored_BKT = (given[name][:, None, start:] for name in ("logps", "old_logps", "p_mask"))
        batch = _batch(scored_BKT.double(), torch.ones_like(scored_BKT[:, 0]), old_BKT, None, given["advantages"])
        choices = {"clip_low": settings["eps"], "clip_high": settings["eps"], "kl_coef": settings["beta"]}
        choices["kl"] = "k3" if settings["use_kl_estimator_k3"] else "k1"
        algorithm = TraceRL(**choices).build(BLOCK if "_bd_" in case else FULL)
        leaf_BKT = logp_BKT.clone().requires_grad_(True)
        loss = algorithm(leaf_BKT, batch)[0] / len(logp_BKT)
        (grad_BKT,) = torch.autograd.grad(loss, leaf_BKT)
        assert _close(loss.detach(), authors["loss"]), case
        assert _close(grad_BKT[:, 0], authors["grad_logps"][:, start:]), case
        assert algorithm.units(batch) == int(scored_BKT.any(-1).sum()) == len(logp_BKT) - 1
        compared += 1
    assert compared == 6


def test_random_rows(shared):
    """Without the rows that train nothing, which the authors drop."""
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "random_masking"):
        rollouts, start, masked = _responses(given, settings), settings["start_pos"], "mdlm" in case
        if masked:
            low, high = settings["lower_p"], settings["upper_p"]
            chosen_BKT = given["u"][..., start:] < low + (high - low) * given["u_t"][..., None]
        else:
            chosen_BKT = (given["u"] <= given["rate"])[:, None]
        views = random_rows(rollouts, chosen_BKT, coupled="coupled" in case, hide_tail=masked)
        ours = {
            (b, tuple(views.masked_BKT[b, k].tolist()), tuple(views.scored_BKT[b, k].tolist()))
            for b, k in views.scored_BKT.any(-1).nonzero().tolist()
        }
        theirs = {(b, tuple(m.tolist()), tuple(t.tolist())) for b, m, t in _authors_rows(authors, settings)}
        assert len(ours) == len(authors["row_sample"]) and ours == theirs, case
        compared += 1
    assert compared == 4


ANSWERS = [([0, 1], [1, 0, 2]), ([1], [0, 2, 1, 1, 0, 2]), ([1, 0, 0, 1], [1]), ([0], [1, 1]), ([1, 1, 0], [0, 1])]
SHIFTS = [(0, 0, 50.0), (0, -1, -50.0), (1, 0, 50.0), (1, -1, -50.0), (2, 0, math.log(1.2) + 1e-9), (4, 0, -0.2231435)]
ADVANTAGE = [1.5, -1.0, 0.7, 0.0, -0.8]
SETTINGS = {
    "trajectory": {"shrink": 1},
    "merged": {"shrink": 2},
    "k1": {"kl": "k1", "kl_coef": 0.1},
    "random_masking": {"method": "random_masking", "draws": 3},
    "coupled": {"method": "coupled", "rate_low": 0.3},
    "all_masked": {"method": "random_masking", "rate_low": 1.0, "rate_high": 1.0},
    "none_masked": {"method": "random_masking", "rate_low": 0.0, "rate_high": 0.0},
}


@pytest.mark.parametrize("spec", [FULL, BLOCK], ids=["masked", "block"])
@pytest.mark.parametrize("name", SETTINGS)
def test_loss_and_gradient_against_loops(name, spec):
    settings = TraceRL(**SETTINGS[name])
    algorithm, batch = _case(settings, spec)
    generator = torch.Generator().manual_seed(1)
    logp_BKT = -3 * torch.rand(batch.views.scored_BKT.shape, dtype=torch.float64, generator=generator)
    for row, place, shift in SHIFTS:
        if len(where := batch.views.scored_BKT[row].nonzero()):
            k, i = where[place].tolist()
            logp_BKT[row, k, i] = batch.old_BKT[row, k, i] + shift
    leaf_BKT = logp_BKT.clone().requires_grad_(True)
    total, _ = algorithm(leaf_BKT, batch)
    units = algorithm.units(batch)
    wanted_leaf = logp_BKT.clone().requires_grad_(True)
    wanted, views = _by_loops(settings, spec, wanted_leaf, batch)
    assert units == views
    if views:
        assert float(total.detach()) / units == pytest.approx(float(wanted.detach()), rel=1e-10, abs=1e-12)
        found, other = (torch.autograd.grad(x, leaf)[0] for x, leaf in ((total, leaf_BKT), (wanted, wanted_leaf)))
        torch.testing.assert_close(found / units, other, rtol=1e-10, atol=1e-12)
    else:
        assert name == "none_masked" and float(total.detach()) == 0


def _case(settings, spec):
    seqs = pack(ANSWERS, spec.pad_id, extra=1)
    rollouts = replace(text_rollouts(seqs), counted_BT=seqs.through_eos(spec.eos_ids))
    algorithm = settings.build(spec)
    views = algorithm.views(outcome(rollouts), 0)
    old_BKT = -3 * torch.rand(views.scored_BKT.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    advantage_BKT = torch.tensor(ADVANTAGE, dtype=torch.float64)[:, None, None]
    return algorithm, Batch(seqs, views, rollouts.counted_BT, old_BKT, None, advantage_BKT)


def _by_loops(settings, spec, now, batch):
    """The definition, one token after the other."""
    rows, block, bound = [], spec.block_size is not None, 10.0 if spec.block_size else math.inf
    for b in range(len(batch)):
        length = int(batch.seqs.response_BT[b].sum())
        for k in range(now.shape[1]):
            tokens = [i for i in range(now.shape[2]) if batch.views.scored_BKT[b, k, i] and batch.counted_BT[b, i]]
            policy = kl = 0.0
            for i in tokens:
                apart = now[b, k, i] - batch.old_BKT[b, k, i]
                ratio, credit = _exp(apart.clamp(-bound, bound)), ADVANTAGE[b]
                held = ratio.clamp(0.8, 1.2) * credit
                policy -= held if float(held.detach()) < float((ratio * credit).detach()) else ratio * credit
                kl += apart if settings.kl == "k1" else _exp((-apart).clamp(-bound, bound)) + apart - 1
            if tokens and block:
                rows.append((policy + settings.kl_coef * kl) / length)
            elif tokens:
                rows.append(policy / len(tokens) + settings.kl_coef * kl)
    return (sum(rows) / len(rows) if rows else None), len(rows)


def _exp(x):
    """The exponential, a line above 20 as everywhere in the losses."""
    return x.exp() if float(x.detach()) < 20 else math.exp(20) * (x - 19)
