"""The preference loss against published numbers, a loop in plain floats, and what follows from its definition."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from dare.algorithms.dpo import DPOConfig
from dare.algorithms.units import VIEW
from dare.batch import Batch
from dare.diffusion.likelihood import score_views
from dare.engines.accumulate import backward
from dare.types import Sequences, Views
from rows import UNEQUAL, keys, pack, repeat
from toy import toy_model

PLAIN = {"sft_weight": 0.0}
SETTINGS = {
    "vrpo": {},
    "dpo": PLAIN,
    "ipo": {"loss": "ipo", "beta": 0.05},
    "simpo": {"reference_free": True, "length_norm": True, "beta": 2.0, "target_margin": 1.0, **PLAIN},
}
KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": 2}}
PAIRED = [*UNEQUAL, UNEQUAL[2]]
"""Three pairs; the second and the last have a response of one token."""

settings = pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def batch_of(weight_BKT, response_BT, reference_BK=None):
    size = response_BT.shape
    seqs = Sequences(torch.zeros(size).long(), response_BT, torch.full(size[:1], size[1]))
    views = Views(weight_BKT != 0, weight_BKT, torch.ones_like(weight_BKT))
    return Batch(seqs, views, response_BT, reference_BK=reference_BK, together=2)


def drawn(model, config, extra=0):
    seqs = pack(PAIRED, model.spec.pad_id, extra)
    return Batch(seqs, config.sampler(model.spec)(seqs, keys(len(PAIRED))), seqs.response_BT, together=2)


def mean_and_gradient(config, logp_BKT, batch):
    leaf_BKT = logp_BKT.clone().requires_grad_(True)
    objective = config.build()
    loss, meter = objective(leaf_BKT, batch)
    mean = loss / objective.units(batch)
    return mean.detach(), torch.autograd.grad(mean, leaf_BKT)[0], meter.mean()


def golden_cases(shared):
    folder = shared / "golden" / "algorithms"
    described, tensors = json.loads((folder / "vrpo.json").read_text()), load_file(folder / "vrpo.safetensors")
    right = described["which_follows_the_paper"].split("`")[1]
    for case, entry in described["cases"].items():
        given, *outs = (
            {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            for prefix in (f"{case}/in/", f"{case}/out/{right}/", f"{case}/out/dare_release/")
        )
        yield case, DPOConfig(beta=entry["settings"]["beta"], **PLAIN), given, *outs


def close(found, wanted):
    return torch.allclose(torch.as_tensor(found, dtype=torch.float64), wanted, rtol=1e-8, atol=1e-12)


def test_published_losses_margins_and_gradients(shared):
    compared = 0
    for case, config, given, paper, _ in golden_cases(shared):
        if paper:
            share_BK = given["lengths"][:, None].double() / given["k"] / given["k"].shape[1]
            weight_BKT = given["mask"] * share_BK[..., None]
            response_BT = given["response_mask"].bool()
            batch = batch_of(weight_BKT, response_BT)
            reference_BK = VIEW.reduce(given["ref_logps"], batch.views)
            assert close(reference_BK.mean(1), paper["ref_elbo"]), case
            batch = replace(batch, reference_BK=reference_BK)
            mean, grad_BKT, metrics = mean_and_gradient(config, given["logps"], batch)
            assert close(mean, paper["loss"]) and close(grad_BKT, paper["grad_logps"]), case
            assert close(metrics["margin"], paper["margin"].mean()), case
            assert close(metrics["elbo/chosen"], paper["elbo"][0::2].mean()), case
            compared += 1
    assert compared >= 3


def test_published_losses_of_given_elbos(shared):
    compared = 0
    for case, config, given, paper, release in golden_cases(shared):
        if not paper:
            logp_BKT, reference_BK = (
                given[name].T.reshape(-1, 1) for name in ("elbo_chosen_rejected", "ref_elbo_chosen_rejected")
            )
            ones_BT = torch.ones_like(logp_BKT)
            batch = batch_of(ones_BT[:, None], ones_BT.bool(), reference_BK)
            mean, grad_BKT, _ = mean_and_gradient(config, logp_BKT[:, None], batch)
            assert close(mean, release["loss"]), case
            assert close(grad_BKT.reshape(-1, 2).T, release["grad_elbo"]), case
            compared += 1
    assert compared


def by_loops(config, logp, batch):
    """The mean loss, one pair, view and token after the other."""
    weight, lengths = batch.views.weight_BKT.tolist(), batch.seqs.response_BT.sum(1).tolist()

    def elbo(row):
        return sum(w * x for ws, xs in zip(weight[row], logp[row], strict=True) for w, x in zip(ws, xs, strict=True))

    def gain(row):
        reference = 0.0 if batch.reference_BK is None else sum(batch.reference_BK[row].tolist()) / len(weight[row])
        return (elbo(row) - reference) / (lengths[row] if config.length_norm else 1)

    total = 0.0
    for chosen in range(0, len(lengths), 2):
        margin = gain(chosen) - gain(chosen + 1)
        if config.loss == "ipo":
            total += (margin - 1 / (2 * config.beta)) ** 2
        else:
            x = config.beta * margin - config.target_margin
            total += math.log1p(math.exp(-abs(x))) + max(0.0, -x)
        total -= config.sft_weight * elbo(chosen) / lengths[chosen]
    return total / (len(lengths) // 2)


@kinds
@settings
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_loss_is_what_a_loop_computes(kind, changes, scale):
    config, model = DPOConfig(draws=3, **changes), toy_model(**kind)
    batch = drawn(model, config, extra=2)
    generator = torch.Generator().manual_seed(0)
    logp_BKT = -scale * torch.rand(batch.views.weight_BKT.shape, generator=generator).double()
    if not config.reference_free:
        batch = replace(batch, reference_BK=-scale * torch.rand(len(batch), 3, generator=generator).double())
    mean, grad_BKT, _ = mean_and_gradient(config, logp_BKT, batch)
    assert float(mean) == pytest.approx(by_loops(config, logp_BKT.tolist(), batch), rel=1e-10)
    assert grad_BKT.isfinite().all() and (grad_BKT != 0).any()


@pytest.mark.parametrize("margin", [1e4, -1e4])
@pytest.mark.parametrize("changes", [PLAIN, {"loss": "ipo", **PLAIN}], ids=["sigmoid", "ipo"])
def test_extreme_margins_stay_finite(margin, changes):
    config, ones_BT = DPOConfig(beta=5.0, **changes), torch.ones(2, 1).double()
    batch = batch_of(ones_BT[:, None], ones_BT.bool(), torch.tensor([[-margin], [0.0]]).double())
    mean, grad_BKT, metrics = mean_and_gradient(config, torch.zeros(2, 1, 1).double(), batch)
    slope = 2 * (margin - 1 / 10) if config.loss == "ipo" else -5.0 * (margin < 0)
    assert float(grad_BKT[0]) == pytest.approx(slope, abs=1e-12) and float(grad_BKT[1]) == pytest.approx(
        -slope, abs=1e-12
    )
    assert mean.isfinite() and metrics["accuracy"] == (margin > 0)


def test_at_the_reference_the_gradient_is_half_beta_of_each_weight():
    config, model = DPOConfig(draws=4, **PLAIN), toy_model()
    batch = drawn(model, config)
    logp_BKT = score_views(model, batch.seqs, batch.views).logp_BKT
    batch = replace(batch, reference_BK=VIEW.reduce(logp_BKT, batch.views))
    mean, grad_BKT, metrics = mean_and_gradient(config, logp_BKT, batch)
    sign_B = torch.tensor([-1.0, 1.0]).repeat(len(batch) // 2).double()
    wanted_BKT = sign_B[:, None, None] * config.beta / 2 * batch.views.weight_BKT / (len(batch) / 2)
    assert torch.allclose(grad_BKT, wanted_BKT, rtol=0, atol=1e-15)
    assert float(mean) == pytest.approx(math.log(2), abs=1e-15) and metrics["margin"] == 0


@kinds
@settings
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
def test_micro_batches_keep_pairs_whole_and_change_nothing(kind, changes, rows):
    config, model = DPOConfig(draws=2, **changes), toy_model(**kind)
    batch = drawn(model, config)
    if not config.reference_free:
        batch = replace(batch, reference_BK=-torch.arange(2 * len(batch)).view(-1, 2).double())
    objective = config.build()
    found = []
    for parts in ([batch], list(batch.split(rows))):
        assert all(len(part) % 2 == 0 for part in parts)
        model.zero_grad(set_to_none=True)
        loss = sum(backward(model, part, objective, objective.units(batch))[0] for part in parts)
        found.append((loss, torch.cat([weight.grad.flatten() for weight in model.parameters()])))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)
    assert torch.allclose(found[0][1], found[1][1], rtol=0, atol=1e-10 * float(found[0][1].abs().max()))


@kinds
@pytest.mark.parametrize("worse", [{"antithetic": False}, {"draws": 1}], ids=str)
def test_more_masks_and_shared_masks_lower_the_variance_of_the_margin(kind, worse):
    """Section 3.2 of the paper; the policy is a small step away from its reference."""
    model, reference = toy_model(**kind), toy_model(**kind)
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator)
    spread = []
    for config in (DPOConfig(draws=4), DPOConfig(**{"draws": 4, **worse})):
        seqs = pack(UNEQUAL[:2], model.spec.pad_id).select(torch.arange(2).repeat(300))
        first, second = (config.sampler(model.spec)(seqs, keys(600, name)) for name in ("policy", "reference"))
        own = first if config.antithetic else second
        gain_B = (estimates(model, seqs, first) - estimates(reference, seqs, own)).mean(1)
        spread.append(float((gain_B[0::2] - gain_B[1::2]).var()))
    assert spread[0] < 0.8 * spread[1]


@pytest.mark.parametrize("kind", [KINDS["full"], {"attention": "block_causal", "block_size": 4}], ids=KINDS)
def test_a_rate_of_its_own_for_each_mask_lowers_the_variance_of_the_estimate(kind):
    model = toy_model(**kind)
    seqs = repeat(pack([([0, 1], [1, 0, 2, 1, 1, 0, 0, 1])], model.spec.pad_id), 1000)
    spread, repeated = (DPOConfig(draws=4, budget=budget).sampler(model.spec) for budget in ("spread", "repeat"))
    k_BK = repeated(seqs, keys(1000)).masked_BKT.sum(-1)
    assert model.spec.block_size or (k_BK == k_BK[:, :1]).all()
    first, second = (float(estimates(model, seqs, s(seqs, keys(1000))).mean(1).var()) for s in (spread, repeated))
    assert first < 0.8 * second


def estimates(model, seqs, views):
    return VIEW.reduce(score_views(model, seqs, views).logp_BKT, views)


def test_options_without_effect_are_refused():
    with pytest.raises(ValueError, match="remove target_margin"):
        DPOConfig(loss="ipo", target_margin=1.0)
    with pytest.raises(ValueError, match="reference_free has none"):
        DPOConfig(reference_free=True, antithetic=False)
