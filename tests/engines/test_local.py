import pytest
import torch

from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.sft import NegativeElbo
from dare.decoding.config import DecodingConfig
from rows import keys, rl_batch, same_weights, sft_batch, toy_engine, weights


@pytest.mark.parametrize(
    ("optim", "wanted"),
    [
        ({}, [1, 1, 1, 1]),
        ({"warmup": 3}, [0.25, 0.5, 0.75, 1, 1]),
        ({"schedule": "cosine"}, [1, 0.8535533905932737, 0.5, 0.14644660940672627, 0]),
        ({"schedule": "cosine", "warmup": 1}, [0.5, 0.8535533905932737, 0.5, 0.14644660940672627, 0, 0]),
    ],
)
def test_learning_rate_is_a_function_of_the_update(optim, wanted):
    engine = toy_engine(total=4, **optim)
    for updates, factor in enumerate(wanted):
        engine.updates = updates
        assert engine.lr() == pytest.approx(0.01 * factor, abs=1e-15)


def test_the_step_uses_the_scheduled_rate_and_a_clipped_gradient():
    engine = toy_engine(warmup=1, max_grad_norm=1e-3, betas=(0.0, 0.0))
    before = weights(engine)
    metrics = engine.update(sft_batch(engine, 0), NegativeElbo()).mean()
    assert metrics["grad_norm"] > 1e-3
    # Adam without memory moves every weight by lr * sign(gradient)
    moved = torch.cat([(a - b).abs().flatten() for a, b in zip(weights(engine), before, strict=True)])
    assert float(moved.max()) == pytest.approx(0.005, rel=1e-2)


@pytest.mark.parametrize("optim", [{}, {"warmup": 4, "schedule": "cosine", "weight_decay": 0.1}])
def test_resuming_is_bit_for_bit(tmp_path, optim):
    straight = toy_engine(**optim)
    for step in range(5):
        straight.update(sft_batch(straight, step), NegativeElbo())
        if step == 1:
            straight.save(tmp_path)
    resumed = toy_engine(seed=9, **optim)
    resumed.load(tmp_path)
    for step in range(2, 5):
        resumed.update(sft_batch(resumed, step), NegativeElbo())
    assert same_weights(weights(resumed), weights(straight))
    assert (resumed.updates, resumed.lr()) == (straight.updates, straight.lr())


def test_micro_batch_changes_neither_update_nor_scores():
    algorithm = CoupledGRPO().build(toy_engine().spec)
    engines = [toy_engine(micro_batch=size) for size in (1, 2, 5)]
    batch = rl_batch(engines[0].model, algorithm)
    scores = [engine.score(batch.seqs, batch.views).logp_BKT for engine in engines]
    metrics = [engine.update(batch, algorithm).mean() for engine in engines]
    for engine, score_BKT, values in zip(engines, scores, metrics, strict=True):
        assert torch.allclose(score_BKT, scores[0], rtol=0, atol=1e-12)
        assert values == pytest.approx(metrics[0], rel=1e-9)
        for a, b in zip(weights(engine), weights(engines[0]), strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-8)


def test_the_reference_stays_where_it_was_kept():
    engine = toy_engine()
    engine.keep_reference()
    batch = sft_batch(engine, 0)
    before = engine.score(batch.seqs, batch.views).logp_BKT
    engine.update(batch, NegativeElbo())
    assert torch.equal(engine.score(batch.seqs, batch.views, reference=True).logp_BKT, before)
    assert not torch.equal(engine.score(batch.seqs, batch.views).logp_BKT, before)


def test_decode_batch_changes_no_rollout():
    prompts, key_B, group_B = [[0], [1, 0, 1, 1], [0, 1], [1]], keys(4), torch.tensor([0, 0, 1, 1])
    decoding = DecodingConfig(max_new_tokens=6, block_size=3, temperature=1.0)
    engines = [toy_engine(), toy_engine()]
    engines[1].config = engines[1].config.model_copy(update={"decode_batch": 1})
    first, second = (engine.rollout(prompts, decoding, key_B, group_B) for engine in engines)
    for name in ("counted_BT", "unmask_step_BT", "group_B", "key_B", "forwards_B"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert torch.equal(first.seqs.ids_BT, second.seqs.ids_BT)
