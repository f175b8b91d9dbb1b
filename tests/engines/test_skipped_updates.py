from dataclasses import replace

import pytest
import torch

from dare.algorithms.d1 import D1
from dare.algorithms.sft import NegativeElbo
from dare.errors import DareError
from dare.meter import Meter
from rows import rl_batch, same_weights, sft_batch, toy_engine, weights

ALGORITHM = D1().build(toy_engine().spec)


class Broken:
    """A finite loss whose gradient is not, or the reverse."""

    def __init__(self, part):
        self.part = part

    reads_entropy = False

    def needs_values(self, batch):
        return True

    def units(self, batch):
        return 1.0

    def __call__(self, logp_BKT, batch):
        loss = logp_BKT.sum()
        return ((loss * 0).sqrt() if self.part == "gradient" else loss + torch.inf), Meter()


def _nan_row(engine):
    """One row of five has a broken advantage: one micro-batch of three gives NaN."""
    batch = rl_batch(engine.model, ALGORITHM)
    advantage_BKT = batch.advantage_BKT.clone()
    advantage_BKT[3] = torch.nan
    return replace(batch, advantage_BKT=advantage_BKT)


def test_a_broken_micro_batch_skips_the_update_and_is_counted():
    engine = toy_engine()
    good, bad = rl_batch(engine.model, ALGORITHM), _nan_row(engine)
    assert engine.update(good, ALGORITHM).mean()["skipped_updates"] == 0
    before = weights(engine)
    state = {name: value.clone() for name, value in engine.optimizer.state[engine.model.norm.weight].items()}
    metrics = engine.update(bad, ALGORITHM).mean()
    assert metrics == {"skipped_updates": 1.0}
    assert same_weights(weights(engine), before) and engine.updates == 1
    after = engine.optimizer.state[engine.model.norm.weight]
    assert all(torch.equal(after[name], value) for name, value in state.items())
    assert engine.update(good, ALGORITHM).mean()["skipped_updates"] == 0
    assert not same_weights(weights(engine), before) and engine.skipped == 0


@pytest.mark.parametrize("part", ["gradient", "loss"])
def test_a_broken_loss_or_gradient_is_skipped(part):
    engine = toy_engine()
    before = weights(engine)
    assert engine.update(sft_batch(engine, 0), Broken(part)).mean() == {"skipped_updates": 1.0}
    assert same_weights(weights(engine), before)


def test_a_skipped_update_leaves_no_trace_in_the_next():
    engine, other = toy_engine(), toy_engine()
    engine.update(_nan_row(engine), ALGORITHM)
    for each in (engine, other):
        each.update(sft_batch(each, 1), NegativeElbo())
    assert same_weights(weights(engine), weights(other))


def test_broken_weights_stop_the_run_after_max_skipped():
    engine = toy_engine(max_skipped=3)
    engine.model.blocks[0].mlp.up.weight.data[0, 0] = torch.nan
    for _ in range(2):
        assert engine.update(sft_batch(engine, 0), NegativeElbo()).mean()["skipped_updates"] == 1
    with pytest.raises(DareError, match="3 updates in a row"):
        engine.update(sft_batch(engine, 0), NegativeElbo())


def test_only_consecutive_skips_stop_the_run():
    engine = toy_engine(max_skipped=2)
    good, bad = rl_batch(engine.model, ALGORITHM), _nan_row(engine)
    for batch in (bad, good, bad, good):
        engine.update(batch, ALGORITHM)
    engine.update(bad, ALGORITHM)
    with pytest.raises(DareError):
        engine.update(bad, ALGORITHM)


def test_the_count_of_skips_survives_a_resume(tmp_path):
    engine = toy_engine(max_skipped=2)
    engine.update(sft_batch(engine, 0), NegativeElbo())
    engine.update(_nan_row(engine), ALGORITHM)
    engine.save(tmp_path)
    resumed = toy_engine(seed=1, max_skipped=2)
    resumed.load(tmp_path)
    with pytest.raises(DareError):
        resumed.update(_nan_row(resumed), ALGORITHM)
