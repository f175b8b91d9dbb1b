from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.sft import NegativeElbo
from dare.batch import Batch
from dare.diffusion.likelihood import score_view, score_views
from dare.diffusion.views import block_rate, coupled, random_rate
from dare.engines.accumulate import backward
from dare.meter import Meter
from dare.types import Views
from rows import UNEQUAL, keys, pack, repeat, rl_batch
from toy import toy_model

KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": 2}}
OBJECTIVES = {
    "sft": NegativeElbo(),
    "d1": D1().build(toy_model().spec),
    "coupled_grpo": CoupledGRPO().build(toy_model().spec),
}

kinds = pytest.mark.parametrize("kind", KINDS)
objectives = pytest.mark.parametrize("name", OBJECTIVES)


class LogSumExp:
    """A loss that mixes the views of a row, so that no view's gradient is known without the others."""

    reads_entropy = False

    def needs_values(self, batch):
        return True

    def units(self, batch):
        return float(len(batch))

    def __call__(self, logp_BKT, batch):
        return (logp_BKT.sum(-1).logsumexp(1) ** 2).sum(), Meter()


def _batch(name, model, extra=0):
    if name != "sft":
        return rl_batch(model, OBJECTIVES[name], extra)
    seqs = pack(UNEQUAL, model.spec.pad_id, extra)
    block = model.spec.block_size
    sampler = partial(block_rate, block_size=block) if block else random_rate
    return Batch(seqs, sampler(seqs, keys(len(UNEQUAL), "sft")), seqs.response_BT)


def _gradient(model, batches, objective, units):
    model.zero_grad(set_to_none=True)
    loss = sum(backward(model, batch, objective, units)[0] for batch in batches)
    return loss, {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in model.named_parameters()
    }


def _same(first, second, tolerance):
    assert first[0] == pytest.approx(second[0], rel=tolerance, abs=tolerance)
    scale = max(float(grad.abs().max()) for grad in second[1].values())
    assert scale > 1e-3
    for name, grad in first[1].items():
        assert (grad - second[1][name]).abs().max() <= tolerance * max(scale, 1), name


@kinds
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_view_by_view_equals_the_full_graph(kind, order):
    model = toy_model(**KINDS[kind])
    batch = _reorder(_plain(model), order)
    units = 3.0
    found = _gradient(model, [batch], LogSumExp(), units)
    model.zero_grad(set_to_none=True)
    views = batch.views
    logp_BKT = torch.stack([score_view(model, batch.seqs, views, k)[0] for k in range(len(order))], dim=1)
    loss, _ = LogSumExp()(logp_BKT, batch)
    (loss / units).backward()
    _same(found, (loss.item(), {name: weight.grad for name, weight in model.named_parameters()}), 1e-12)


@kinds
@objectives
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_micro_batches_change_nothing(kind, name, rows):
    model, objective = toy_model(**KINDS[kind]), OBJECTIVES[name]
    batch = _batch(name, model)
    whole = _gradient(model, [batch], objective, objective.units(batch))
    _same(_gradient(model, list(batch.split(rows)), objective, objective.units(batch)), whole, 1e-10)


@kinds
@objectives
def test_padding_changes_nothing(kind, name):
    model, objective = toy_model(**KINDS[kind]), OBJECTIVES[name]
    narrow, wide = (_batch(name, model, extra) for extra in (0, 5))
    filler = wide.seqs.ids_BT.masked_fill(~wide.seqs.valid_BT, 0)
    for padded in (wide, replace(wide, seqs=replace(wide.seqs, ids_BT=filler))):
        assert objective.units(padded) == objective.units(narrow)
        _same(
            _gradient(model, [padded], objective, objective.units(padded)),
            _gradient(model, [narrow], objective, objective.units(narrow)),
            1e-10,
        )


@kinds
@objectives
def test_row_and_view_order_change_nothing(kind, name):
    model, objective = toy_model(**KINDS[kind]), OBJECTIVES[name]
    batch = _batch(name, model)
    units, count = objective.units(batch), batch.views.masked_BKT.shape[1]
    whole = _gradient(model, [batch], objective, units)
    _same(_gradient(model, [batch.select(torch.tensor([4, 1, 0, 3, 2]))], objective, units), whole, 1e-10)
    _same(_gradient(model, [_reorder(batch, list(reversed(range(count))))], objective, units), whole, 1e-10)


def test_sft_loss_is_the_weighted_cross_entropy_per_answer_token():
    model = toy_model()
    batch = _batch("sft", model)
    total = 0.0
    for row, (prompt, response) in enumerate(UNEQUAL):
        masked_T, rate = batch.views.masked_BKT[row, 0], float(batch.views.rate_BKT[row, 0, 0])
        ids = torch.tensor([*prompt, *response])
        hidden_T = masked_T[: len(ids)]
        with torch.no_grad():
            noised = torch.where(hidden_T, model.spec.mask_id, ids)[None]
            logits_TV = model.head(model.hidden(noised, torch.tensor([len(ids)])))[0]
        loss = F.cross_entropy(logits_TV[hidden_T], ids[hidden_T], reduction="sum")
        total += float(loss) / rate / len(response)
    assert _gradient(model, [batch], NegativeElbo(), 5.0)[0] == pytest.approx(total, rel=1e-6)  # weights are float32


@kinds
@objectives
def test_nothing_masked_gives_zero_loss_and_zero_gradients(kind, name):
    model, objective = toy_model(**KINDS[kind]), OBJECTIVES[name]
    batch = _batch(name, model)
    nothing = {
        "masked_BKT": torch.zeros_like(batch.views.masked_BKT),
        "weight_BKT": torch.zeros_like(batch.views.weight_BKT),
    }
    zeros = None if batch.old_BKT is None else torch.zeros_like(batch.old_BKT)
    empty = replace(
        batch,
        views=replace(batch.views, **nothing),
        old_BKT=zeros,
        reference_BKT=zeros,
        counted_BT=torch.zeros_like(batch.counted_BT),
    )
    loss, gradient = _gradient(model, [empty], objective, 1.0)
    assert loss == 0
    assert all((grad == 0).all() for grad in gradient.values())


@kinds
@pytest.mark.parametrize("name", ["d1", "coupled_grpo"])
def test_the_first_update_needs_no_old_scores(kind, name):
    model, objective = toy_model(**KINDS[kind]), replace(OBJECTIVES[name], kl_coef=0.0)
    batch = replace(_batch(name, model), reference_BKT=None)
    live = replace(batch, old_BKT=score_views(model, batch.seqs, batch.views).logp_BKT)
    units = objective.units(batch)
    first, second = (_gradient(model, [b], objective, units) for b in (replace(batch, old_BKT=None), live))
    _same(first, second, 1e-10)


def _plain(model):
    seqs = repeat(pack(UNEQUAL[1:2], model.spec.pad_id), 1)
    seqs = pack(UNEQUAL, model.spec.pad_id) if model is not None else seqs
    return Batch(seqs, coupled(seqs, keys(len(UNEQUAL), "full graph")), seqs.response_BT)


def _reorder(batch, order):
    views = Views(*(x[:, order] for x in (batch.views.masked_BKT, batch.views.weight_BKT, batch.views.rate_BKT)))
    old_BKT, reference_BKT = (None if x is None else x[:, order] for x in (batch.old_BKT, batch.reference_BKT))
    return replace(batch, views=views, old_BKT=old_BKT, reference_BKT=reference_BKT)
