import json
from functools import partial

import torch
from safetensors.torch import load_file

from dare.algorithms.base import Algorithm
from dare.algorithms.kl import k3
from dare.algorithms.losses import clipped, is_clipped
from dare.batch import Batch
from dare.types import Sequences, Views


def _cases(shared, name):
    """Yield (case, settings, inputs, outputs of the authors, outputs of the release) of one golden file."""
    folder = shared / "golden" / "algorithms"
    tensors = load_file(folder / f"{name}.safetensors")
    for case, entry in json.loads((folder / f"{name}.json").read_text())["cases"].items():
        parts = [
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            for prefix in (f"{case}/in/", f"{case}/out/authors/", f"{case}/out/dare_release/")
        ]
        yield case, entry["settings"], *parts


def _algorithm(low, high, beta):
    return Algorithm(
        views=None,
        credit=None,
        loss=partial(clipped, low=low, high=high),
        clips=partial(is_clipped, low=low, high=high),
        kl=k3,
        kl_coef=beta,
    )


def _batch(weight_BKT, counted_BT, old_BKT, reference_BKT, advantage_B):
    size = counted_BT.shape
    seqs = Sequences(torch.zeros(size).long(), torch.ones(size).bool(), torch.full(size[:1], size[1]))
    views = Views(weight_BKT != 0, weight_BKT, torch.ones_like(weight_BKT))
    return Batch(seqs, views, counted_BT.bool(), old_BKT, reference_BKT, advantage_B[:, None, None])


def _mean_and_gradient(algorithm, logp_BKT, batch):
    leaf_BKT = logp_BKT.clone().requires_grad_(True)
    loss, meter = algorithm(leaf_BKT, batch)
    mean = loss / algorithm.units(batch)
    return mean.detach(), torch.autograd.grad(mean, leaf_BKT)[0], meter.mean()


def _close(found, wanted, tolerance=1e-8):
    return torch.allclose(torch.as_tensor(found, dtype=torch.float64), wanted, rtol=tolerance, atol=1e-12)


def test_d1_loss_gradient_and_metrics(shared):
    compared = 0
    for case, settings, given, authors, release in _cases(shared, "d1"):
        logp_BKT = given["logps"][:, None]
        old_BKT = logp_BKT if settings["num_iterations"] == 1 else given["old_logps"][:, None]
        counted_BT = given["completion_mask"]
        batch = _batch(torch.ones_like(logp_BKT), counted_BT, old_BKT, given["ref_logps"][:, None], given["advantages"])
        algorithm = _algorithm(settings["epsilon"], settings["epsilon"], settings["beta"])
        mean, grad_BKT, metrics = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, authors["loss"]), case
        assert _close(grad_BKT[:, 0], authors["grad_logps"]), case
        assert "kl" not in authors or _close(metrics["kl"], authors["kl"]), case
        # the authors' clip ratio is inverted; the release divides by count + 1e-8
        assert "clipfrac" not in release or _close(metrics["clip_fraction"], release["clipfrac"], 1e-6), case
        compared += 1
    assert compared >= 5


def test_coupled_grpo_loss_and_gradient(shared):
    compared = 0
    for case, settings, given, authors, _ in _cases(shared, "coupled_grpo"):
        logp_BKT, chosen_BT = given["logps_views"].transpose(0, 1), given["S"]
        masked_BKT = torch.stack([torch.ones_like(chosen_BT), chosen_BT, ~chosen_BT], dim=1)
        weight_BKT = masked_BKT * torch.tensor(settings["weights"], dtype=torch.float64)[:, None] / 2
        old_BKT, reference_BKT = (_as_views(given[name]) for name in ("old_scores", "ref_scores"))
        batch = _batch(weight_BKT, given["completion_mask"], old_BKT, reference_BKT, given["advantages"])
        algorithm = _algorithm(settings["epsilon_low"], settings["epsilon_high"], settings["beta"])
        counted_BT = batch.counted_BT
        score_BT = algorithm.unit.reduce(logp_BKT, batch.views)
        assert _close(score_BT[counted_BT], authors["token_scores"][counted_BT]), case
        mean, grad_BKT, _ = _mean_and_gradient(algorithm, logp_BKT, batch)
        assert _close(mean, authors["loss"]), case
        assert _close(grad_BKT, authors["grad_logps_views"].transpose(0, 1)), case
        compared += 1
    assert compared >= 3


def test_k3_and_its_gradient(shared):
    cases = {case: (given, release) for case, _, given, _, release in _cases(shared, "policy_primitives")}
    given, release = cases["kl_estimators"]
    logp_BT = given["logps"].clone().requires_grad_(True)
    value_BT = k3(logp_BT - given["ref_logps"])
    value_BT.sum().backward()
    unclamped_BT = release["k3"].abs() < 10  # the release clamps there
    assert unclamped_BT.sum() > unclamped_BT.numel() / 2
    assert _close(value_BT.detach()[unclamped_BT], release["k3"][unclamped_BT])
    assert _close(logp_BT.grad[unclamped_BT], release["k3_grad_of_sum"][unclamped_BT])


def test_asymmetric_clip_fraction(shared):
    for case, settings, given, _, release in _cases(shared, "policy_primitives"):
        if settings.get("loss_agg_mode") == "token-mean":
            cut_BT = is_clipped(
                given["logps"] - given["old_logps"],
                given["advantages"][:, None],
                low=settings["clip_low"],
                high=settings["clip_high"],
            )
            share = cut_BT[given["response_mask"].bool()].double().mean()
            assert share > 0 and _close(share, release["clipfrac"], 1e-6), case


def _as_views(score_BT):
    """A combined score as three views: twice the score under view 0, whose weight is one half."""
    zero_BT = torch.zeros_like(score_BT)
    return torch.stack([2 * score_BT, zero_BT, zero_BT], dim=1)
