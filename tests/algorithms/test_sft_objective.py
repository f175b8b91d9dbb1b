"""The settings of SFT: every combination is one loss, divided once; what cannot work is refused when it is read."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from dare.algorithms.sft import NegativeElbo
from dare.algorithms.sft_config import ObjectiveConfig
from dare.batch import Batch
from dare.diffusion.likelihood import score_views
from dare.diffusion.trajectory import left_to_right
from dare.diffusion.views import block_rate, random_rate
from dare.engines.accumulate import backward
from rows import UNEQUAL, keys, pack, same_weights, toy_engine, weights
from toy import toy_model

KINDS = {"full": {}, "block": {"attention": "block_causal", "block_size": 2}}
WORDS = torch.tensor([0, 1])
ROWS = [*UNEQUAL, ([1], [0, 2]), ([0, 0], [1, 1, 1]), ([1, 1], [0])]
OBJECTIVES = {
    "llada": {},
    "sdar": {"rate_per": "row", "normalise": "token"},
    "cosine": {"schedule": "cosine", "normalise": "masked"},
    "cart": {"weight": "cart", "normalise": "token"},
    "band": {"rates": [0.3, 0.8], "weight": "none", "normalise": "masked", "complementary": True},
    "edit": {"rates": [0.3, 0.8], "weight": "none", "normalise": "masked", "edit": {"rate": 0.5, "weight": 0.5}},
    "sure": {"normalise": "token", "complementary": True, "rates": [0.2, 0.8], "confidence": 0.7},
    "mixed": {"next_token": 0.5, "edit": {"rate": 0.5}},
    "trace": {"order": "trace", "next_token": 0.5, "normalise": "token"},
}
CELLS = [(name, kind) for name in OBJECTIVES for kind in KINDS if (name, kind) != ("cart", "block")]


def make(name: str, kind: str, extra: int = 0) -> tuple:
    config, model = ObjectiveConfig(**OBJECTIVES[name]), toy_model(**KINDS[kind])
    seqs = pack(ROWS, model.spec.pad_id, extra)
    place_T = torch.arange(seqs.ids_BT.shape[1])
    step_BT = torch.where(seqs.response_BT, (place_T * 7 % 4).expand_as(seqs.ids_BT), -1)
    views = config.views(model.spec, WORDS)(seqs, keys(len(ROWS)), step_BT)
    counted_BT = seqs.response_BT & (place_T < seqs.lengths_B[:, None] - 1)
    return model, config.build(), Batch(seqs, views, counted_BT)


def gradient(model, objective: NegativeElbo, batch: Batch, rows: int) -> tuple[float, torch.Tensor, dict]:
    model.zero_grad(set_to_none=True)
    units, total, metrics = objective.units(batch), 0.0, None
    for micro in batch.split(rows):
        loss, meter = backward(model, micro, objective, units)
        total += loss / units
        metrics = meter if metrics is None else metrics.update(meter) or metrics
    return total, torch.cat([weight.grad.flatten() for weight in model.parameters()]), metrics.mean()


@pytest.mark.parametrize(("name", "kind"), CELLS)
def test_8_rows_4_times_2_and_1_by_1_have_the_same_gradient(name, kind):
    model, objective, batch = make(name, kind)
    loss, grad, metrics = gradient(model, objective, batch, 8)
    assert float(grad.abs().max()) > 1e-3
    for rows in (4, 2, 1):
        other_loss, other_grad, other_metrics = gradient(model, objective, batch, rows)
        assert other_loss == pytest.approx(loss, rel=1e-10)
        assert float((other_grad - grad).abs().max()) <= 1e-10 * max(1.0, float(grad.abs().max()))
        assert other_metrics == pytest.approx(metrics, rel=1e-6)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(("name", "kind"), CELLS)
def test_padding_changes_nothing(name, kind):
    (loss, grad, _), (other_loss, other_grad, _) = (
        gradient(model, objective, batch, 3)
        for model, objective, batch in (make(name, kind), make(name, kind, extra=5))
    )
    assert other_loss == pytest.approx(loss, rel=1e-10)
    assert float((other_grad - grad).abs().max()) <= 1e-10 * max(1.0, float(grad.abs().max()))


@pytest.mark.parametrize("normalise", ["row", "token", "masked"])
def test_each_normalisation_as_loops(normalise):
    model, _, batch = make("edit", "full")
    logp_BKT = score_views(model, batch.seqs, batch.views).logp_BKT
    total, tokens, scored = 0.0, 0, 0
    for row, (_, answer) in enumerate(ROWS):
        loss = 0.0
        for place in range(batch.seqs.ids_BT.shape[1]):
            if weight := float(batch.views.weight_BKT[row, 0, place]):
                loss -= weight * float(logp_BKT[row, 0, place])
                scored += 1
        total += loss / len(answer) if normalise == "row" else loss
        tokens += len(answer)
    expected = total / {"row": len(ROWS), "token": tokens, "masked": scored}[normalise]
    objective = NegativeElbo(normalise)
    assert float(objective(logp_BKT, batch)[0]) / objective.units(batch) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("name", "kind"), CELLS)
def test_nothing_masked_is_no_loss_no_gradient_and_a_step_all_the_same(name, kind):
    engine = toy_engine(weight_decay=0.0)
    _, objective, batch = make(name, kind)
    views = batch.views
    empty = replace(
        batch,
        views=replace(views, masked_BKT=views.masked_BKT & False, weight_BKT=views.weight_BKT * 0.0),
    )
    before = weights(engine)
    metrics = engine.update(empty, objective).mean()
    assert metrics["skipped_updates"] == 0 and metrics["grad_norm"] == 0
    assert metrics.get("loss", 0.0) == 0 and engine.updates == 1
    assert same_weights(before, weights(engine))


def test_the_default_is_what_the_family_was_defined_with_bit_for_bit():
    for kind in KINDS:
        model = toy_model(**KINDS[kind])
        seqs = pack(ROWS, model.spec.pad_id, extra=1)
        views = ObjectiveConfig().views(model.spec, WORDS)(seqs, keys(len(ROWS)), None)
        published = (
            random_rate(seqs, keys(len(ROWS))) if kind == "full" else block_rate(seqs, keys(len(ROWS)), block_size=2)
        )
        assert torch.equal(views.weight_BKT, published.weight_BKT) and torch.equal(views.rate_BKT, published.rate_BKT)
        assert views.shown_BKT is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_left_to_right_term_is_the_weighted_next_token_loss_on_average(kind):
    model, count, weight = toy_model(**KINDS[kind]), 3000, 0.5
    seqs = pack([([1], [0, 1, 0])] * count, model.spec.pad_id)
    views = ObjectiveConfig(next_token=weight).views(model.spec, WORDS)(seqs, keys(count), None)
    assert views.masked_BKT.shape[1] == 2
    one = seqs.select(slice(0, 1))
    every = left_to_right(one, one.response_BT, block_size=model.spec.block_size)
    exact = weight * float(score_views(model, one, every).logp_BKT.sum())
    last = replace(views, masked_BKT=views.masked_BKT[:, 1:], weight_BKT=views.weight_BKT[:, 1:])
    drawn_N = (score_views(model, seqs, last).logp_BKT * last.weight_BKT).sum((1, 2))
    error = float(drawn_N.std()) / count**0.5
    assert abs(float(drawn_N.mean()) - exact) < 4 * error and error < 0.05 * abs(exact)


def test_metrics_tell_the_kinds_of_tokens_apart():
    model, objective, batch = make("mixed", "full")
    metrics = gradient(model, objective, batch, 8)[2]
    logp_BKT, views = score_views(model, batch.seqs, batch.views).logp_BKT, batch.views
    edited_BT = views.scored_BKT[:, 0] & ~views.masked_BKT[:, 0]
    assert metrics["loss/edited"] == pytest.approx(-float(logp_BKT[:, 0][edited_BT].mean()), rel=1e-10)
    assert metrics["loss/next_token"] == pytest.approx(-float(logp_BKT[:, 1][views.scored_BKT[:, 1]].mean()), rel=1e-10)
    level_BT = views.masked_BKT[:, 0] & (views.rate_BKT[:, 0] >= 0.8)
    assert metrics["loss/t_0.8_1.0"] == pytest.approx(-float(logp_BKT[:, 0][level_BT].mean()), rel=1e-10)
    loss_BKT = -logp_BKT * views.weight_BKT / batch.seqs.response_BT.sum(1)[:, None, None]
    padding = loss_BKT.sum(1)[batch.seqs.response_BT & ~batch.counted_BT].sum() / loss_BKT.sum()
    assert metrics["loss/eos_padding_share"] == pytest.approx(float(padding), rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"rates": [0.8, 0.3]}, "lowest and a higher"),
        ({"rates": [0.0, 1.0]}, "above 0"),
        ({"complementary": True}, r"set rates=\[0.001, 0.999\]"),
        ({"geo_p": 0.5}, "set weight=cart"),
        ({"normalise": "masked", "next_token": 0.1}, "normalise=token"),
        ({"normalise": "masked", "order": "trace"}, "normalise=token"),
        ({"order": "trace", "weight": "none", "edit": {}}, "weight, edit has no effect"),
        ({"edit": {"rate": 0}}, "greater than 0"),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(settings, fix):
    with pytest.raises(ValidationError, match=fix):
        ObjectiveConfig(**settings)


@pytest.mark.parametrize("kind", KINDS)
def test_confidence_adds_the_entropy_of_what_is_predicted_rightly(kind):
    """Loss and gradient through the whole graph, token by token."""
    model, objective, batch = make("sure", kind)
    found, grad, _ = gradient(model, objective, batch, 2)
    plain, views, ids_BT = NegativeElbo("token"), batch.views, batch.seqs.ids_BT
    total, right = torch.zeros((), dtype=torch.float64), 0
    for b, k, t in views.scored_BKT.nonzero().tolist():
        one = batch.seqs.select(slice(b, b + 1))
        shown_BT = torch.where(views.masked_BKT[b : b + 1, k], model.spec.mask_id, one.ids_BT)
        read_BT = torch.zeros_like(one.response_BT)
        read_BT[0, t] = True
        clean_BT = one.ids_BT if kind == "block" else None
        (logp_V,) = model.head(model.states(shown_BT, one.lengths_B, read_BT, clean_NT=clean_BT)).log_softmax(-1)
        total = total - views.weight_BKT[b, k, t] * logp_V[ids_BT[b, t]]
        if int(logp_V.argmax()) == int(ids_BT[b, t]):
            total, right = total - 0.7 * (logp_V.exp() * logp_V).sum(), right + 1
    assert 0 < right < int(views.scored_BKT.sum())
    assert float(total.detach()) / plain.units(batch) == pytest.approx(found, rel=1e-10)
    model.zero_grad(set_to_none=True)
    (total / plain.units(batch)).backward()
    wanted = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    torch.testing.assert_close(grad, wanted, rtol=1e-10, atol=1e-12)
