"""The value model beside the policy: what it reads, how it learns, what is saved."""

import pytest
import torch

from dare.algorithms.tracerl import TraceRL
from dare.algorithms.value import Value
from dare.batch import Batch
from dare.diffusion.likelihood import score_view
from dare.diffusion.trajectory import trajectory
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint
from dare.models.lora import LoraSettings, add_adapter
from dare.models.value import ValueModel
from rows import UNEQUAL, outcome, pack, text_rollouts, toy_engine
from toy import all_states, toy_model

KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": 2}}


def _engine(kind="full", micro_batch=2, lora=False, lr=0.01):
    model = toy_model(**KINDS[kind])
    if lora:
        add_adapter(model, LoraSettings(rank=2), seed=0)
    checkpoint = Checkpoint(model, {"architectures": ["DareTiny"]}, None)
    engine = LocalEngine(checkpoint, EngineConfig(micro_batch=micro_batch), OptimConfig(lr=lr), 10)
    engine.add_critic(lr)
    return engine


def _randomize(engine):
    """A new value model says zero everywhere; give it something to say."""
    with torch.no_grad():
        engine.critic.model.value.normal_(std=0.3, generator=torch.Generator().manual_seed(1))


def _batch(engine, extra=0):
    seqs = pack(UNEQUAL, engine.spec.pad_id, extra)
    rollouts = text_rollouts(seqs)
    views = TraceRL(shrink=2).build(engine.spec).views(outcome(rollouts), 0)
    generator = torch.Generator().manual_seed(0)
    old_BKT = engine.values(seqs, views) + 0.3 * torch.randn(views.scored_BKT.shape[:2], generator=generator)[..., None]
    return_BKT = torch.randn(len(UNEQUAL), 1, 1, dtype=torch.float64, generator=generator)
    return_BKT = return_BKT.expand(-1, 1, seqs.ids_BT.shape[1])
    return Batch(seqs, views, seqs.response_BT, value_BKT=old_BKT, return_BKT=return_BKT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_read_at_its_token_in_the_masked_row(kind):
    engine = _engine(kind)
    assert engine.values(_batch(engine).seqs, _batch(engine).views).abs().max() == 0
    _randomize(engine)
    batch, critic = _batch(engine), engine.critic.model
    value_BKT = engine.values(batch.seqs, batch.views)
    for b, k, i in batch.views.scored_BKT.nonzero().tolist():
        one = slice(b, b + 1)
        ids_BT = torch.where(batch.views.masked_BKT[one, k], engine.spec.mask_id, batch.seqs.ids_BT[one])
        clean_BT = batch.seqs.ids_BT[one] if kind == "block" else None
        state_D = all_states(engine.model, ids_BT, batch.seqs.lengths_B[one], clean_BT)[0, i]
        assert float(value_BKT[b, k, i]) == pytest.approx(float((state_D @ critic.value).detach()), rel=1e-10)
    assert (value_BKT[~batch.views.scored_BKT] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_and_padding_change_no_step(kind):
    kept = []
    for rows, extra in ((1, 0), (2, 3), (8, 0)):
        engine = _engine(kind, micro_batch=rows)
        _randomize(engine)
        meter = engine.update_values(_batch(engine, extra), Value(target=None, clip=0.2))
        kept.append((dict(engine.critic.model.named_parameters()), meter.mean()))
    assert set(kept[0][1]) >= {"value/loss", "value/clip_fraction", "value/grad_norm", "value/skipped_updates"}
    for weights, metrics in kept[1:]:
        assert metrics == pytest.approx(kept[0][1], rel=1e-9)
        for name, weight in kept[0][0].items():
            torch.testing.assert_close(weights[name], weight, rtol=1e-7, atol=1e-9)


def test_an_update_is_the_gradient_of_the_loss_alone():
    engine = _engine()
    _randomize(engine)
    batch, value, critic = _batch(engine), Value(target=None, clip=0.2), engine.critic.model
    policy = [weight.clone() for weight in engine.model.parameters()]
    count = batch.views.masked_BKT.shape[1]
    value_BKT = torch.stack([score_view(critic, batch.seqs, batch.views, k)[0] for k in range(count)], 1)
    loss, _ = value(value_BKT, batch)
    grads = torch.autograd.grad(loss / value.units(batch), list(critic.parameters()), allow_unused=True)
    before = [weight.detach().clone() for weight in critic.parameters()]
    engine.update_values(batch, value)
    for old, new, grad in zip(before, critic.parameters(), grads, strict=True):
        if grad is not None:  # the first step of Adam goes against the sign of the gradient
            moved = grad.abs() > 1e-5
            assert torch.equal((new - old).sign()[moved], -grad.sign()[moved])
    assert all(torch.equal(a, b) for a, b in zip(policy, engine.model.parameters(), strict=True))


def test_it_learns_what_to_expect():
    """The reward is whether the answer holds the word 1 more often than the word 0."""
    engine, generator = _engine(micro_batch=32, lr=0.02), torch.Generator().manual_seed(0)
    texts = torch.randint(0, 2, (48, 5), generator=generator).tolist()
    seqs = pack([([0], text) for text in texts], engine.spec.pad_id)
    reward_B = torch.tensor([float(sum(text) > 2) for text in texts], dtype=torch.float64)
    views = trajectory(text_rollouts(seqs))
    return_BKT = reward_B[:, None, None].expand(-1, 1, seqs.ids_BT.shape[1])
    errors = []
    for _ in range(60):
        batch = Batch(seqs, views, seqs.response_BT, value_BKT=engine.values(seqs, views), return_BKT=return_BKT)
        errors.append(engine.update_values(batch, Value(target=None, clip=0.2)).mean()["value/loss"])
    value_BKT = engine.values(seqs, views)
    last_B = value_BKT[:, -1, -1]  # all but one token is known
    sure_B = torch.tensor([abs(sum(text[:4]) - 2) > 0 for text in texts])
    assert errors[-1] < 0.4 * errors[0]
    assert (last_B[sure_B] - reward_B[sure_B]).abs().mean() < 0.15


@pytest.mark.parametrize("lora", [False, True])
def test_saved_and_loaded_bit_for_bit(tmp_path, lora):
    engine, value = _engine(lora=lora), Value(target=None, clip=0.2)
    batch = _batch(engine)
    engine.update_values(batch, value)
    engine.critic.save(tmp_path / "critic")
    other = _engine(lora=lora)
    other.critic.load(tmp_path / "critic")
    assert other.critic.updates == 1
    for one in (engine, other):
        one.update_values(batch, value)
    trained, again = engine.critic.model.trained(), other.critic.model.trained()
    assert all(torch.equal(weight, again[name]) for name, weight in trained.items())
    assert any("lora_" in name for name in trained) == lora
    assert lora == (len(trained) < len(list(engine.critic.model.parameters())))


def test_a_run_without_one_cannot_be_resumed_with_one(tmp_path):
    toy = toy_engine()
    toy.add_critic(1e-3)
    with pytest.raises(DareError, match=r"algorithm\.critic it began with"):
        toy.critic.load(tmp_path / "critic")


def test_it_has_no_vocabulary():
    model = ValueModel(toy_model())
    assert not any("unembed" in name for name, _ in model.named_parameters())
    assert sum(w.numel() for w in model.parameters()) == sum(w.numel() for w in toy_model().parameters()) - 4 * 16
