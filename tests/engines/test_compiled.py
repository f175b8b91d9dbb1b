import copy

import pytest
import torch

from dare.algorithms.sft import NegativeElbo
from dare.batch import Batch
from dare.diffusion.noise import key
from dare.diffusion.views import random_rate
from dare.engines import compiled
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint
from dare.types import pack
from toy import toy_model


def engine(compile: bool) -> LocalEngine:
    config = EngineConfig(compile=compile, dtype="float64")
    return LocalEngine(Checkpoint(toy_model(vocab_size=9), {}, None), config, OptimConfig(lr=1e-2), total_updates=2)


def batch(lengths: list[int]) -> Batch:
    seqs = pack([[position % 6 for position in range(length)] for length in lengths], [2] * len(lengths), pad_id=7)
    return Batch(seqs, random_rate(seqs, key("noise", torch.arange(len(lengths)))), seqs.response_BT)


def test_compiling_changes_rounding_alone():
    plain, fused = engine(False), engine(True)
    fused.keep_reference()
    for lengths in ([8, 11], [5, 9, 14]):
        for one in (plain, fused):
            one.update(batch(lengths), NegativeElbo())
        scores = [one.score(batch(lengths).seqs, batch(lengths).views).logp_BKT for one in (plain, fused)]
        torch.testing.assert_close(*scores, rtol=1e-9, atol=1e-9)
    assert all(block.mlp._compiled_call_impl for block in [*fused.model.blocks, *fused.reference.blocks])
    assert fused.model.state_dict().keys() == plain.model.state_dict().keys()
    assert copy.deepcopy(fused.model).blocks[0].mlp._compiled_call_impl is None  # decoding and copies run plain


@pytest.mark.parametrize(("device", "tool"), [("cpu", "C\\+\\+ compiler"), ("cuda", "Triton")])
def test_missing_tools_are_named(monkeypatch, device, tool):
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DareError, match=tool):
        compiled._check_tools(device)
