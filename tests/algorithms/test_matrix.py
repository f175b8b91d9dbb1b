"""One real run per cell of the table in docs/algorithms.md; a refused cell names its reason."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cells import ALGORITHMS, REFUSED, SUPPORTED, layers, letters
from dare.algorithms.losses import reinforce
from dare.config import load_config
from dare.errors import DareError
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.rl import train_rl
from rows import rl_batch
from toy import toy_model

TOYS = {"full": {}, "block_causal": {"attention": "block_causal", "block_size": 2}}


@pytest.mark.parametrize(("name", "kind"), SUPPORTED)
def test_two_steps_train_the_policy(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.REWARDS, "toy", letters)
    settings = ["algorithm.updates=2", "algorithm.success_range=null", "optim.lr=1e-4", "train={batch: 2, steps: 2}"]
    folder = train_rl(load_config(RLConfig, [*layers(name, kind, tmp_path / "run"), *settings]))
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        assert all(value is None or math.isfinite(value) for key, value in metrics.items() if key != "phase")
        assert metrics["grad_norm"] > 0 and metrics["skipped_updates"] == 0
        assert metrics["mismatch/kl"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(("name", "kind"), REFUSED)
def test_an_impossible_pair_is_refused_with_its_reason(name: str, kind: str, tmp_path: Path) -> None:
    reason = ALGORITHMS[name].refuses[kind]
    with pytest.raises(DareError) as caught:
        load_config(RLConfig, layers(name, kind, tmp_path / "run"))
    assert reason in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [cell for cell in SUPPORTED if ALGORITHMS[cell[0]].records != "predictions"])
def test_at_ratio_one_the_gradient_is_the_policy_gradient_of_the_estimate(name: str, kind: str) -> None:
    model = toy_model(**TOYS[kind])
    algorithm = replace(ALGORITHMS[name]().build(model.spec), kl_coef=0.0)
    batch = rl_batch(model, algorithm)
    score = torch.where(batch.views.scored_BKT, -1.5, 0.0).double()
    found, same = (_gradient(algorithm, score, replace(batch, old_BKT=old)) for old in (None, score))
    plain = replace(algorithm, loss=reinforce, behaviour=False) if algorithm.behaviour else algorithm
    leaf = score.clone().requires_grad_(True)
    scores = algorithm.unit.reduce(leaf, batch.views)
    norm = 1.0 if algorithm.norm is None else algorithm.norm(scores, batch)
    value = plain.loss(scores / norm, plain.unit.credit(batch.advantage_BKT))
    weight, _ = algorithm.aggregate(algorithm.unit.weight(batch), batch)
    (wanted,) = torch.autograd.grad((weight * value).where(algorithm.unit.counted(batch), 0.0).sum(), leaf)
    assert wanted.abs().max() > 1e-6
    assert torch.allclose(found, wanted, rtol=1e-12) and torch.allclose(same, wanted, rtol=1e-12)


def _gradient(algorithm, score_BKT, batch):
    leaf = score_BKT.clone().requires_grad_(True)
    return torch.autograd.grad(algorithm(leaf, batch)[0], leaf)[0]
