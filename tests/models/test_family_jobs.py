"""What each family can do, one small real job per cell of the table in docs/models.md."""

from pathlib import Path

import pytest
import torch

from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.sft import NegativeElbo
from dare.algorithms.sft_config import ObjectiveConfig
from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.diffusion.noise import key
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.models.checkpoint import Checkpoint, load_checkpoint, save_model
from dare.models.lora import LoraSettings, add_adapter, has_adapter
from dare.types import pack
from families import FAMILIES, load
from rows import outcome

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15]]
KEYS = key(0, torch.arange(3))


def engine(checkpoint: Checkpoint, lr: float = 1e-3) -> LocalEngine:
    return LocalEngine(checkpoint, EngineConfig(), OptimConfig(lr=lr), total_updates=10)


def sft_losses(job: LocalEngine, steps: int = 6) -> list[float]:
    rows = [[*prompt, 21, 22, 23, 24, job.spec.eos_ids[0]] for prompt in PROMPTS]
    seqs = pack(rows, [len(prompt) for prompt in PROMPTS], job.spec.pad_id)
    views = ObjectiveConfig().views(job.spec, torch.arange(3))(seqs, KEYS, None)
    batch = Batch(seqs, views, seqs.response_BT)
    return [job.update(batch, NegativeElbo()).mean()["loss"] for _ in range(steps)]


@pytest.mark.parametrize("name", FAMILIES)
def test_sft(name: str, shared: Path, tmp_path: Path) -> None:
    losses = sft_losses(engine(load(shared, name, tmp_path)))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_lora(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint = load(shared, name, tmp_path)
    frozen = {n: w.clone() for n, w in checkpoint.model.named_parameters()}
    add_adapter(checkpoint.model, LoraSettings(rank=4), 0)
    assert has_adapter(checkpoint.model)
    losses = sft_losses(engine(checkpoint, lr=1e-2))
    assert losses[-1] < losses[0]
    kept = {n.replace(".base_layer", ""): w for n, w in checkpoint.model.named_parameters() if "lora_" not in n}
    assert all(torch.equal(kept[n], w) for n, w in frozen.items())


@pytest.mark.parametrize("settings", [D1(group_size=3), CoupledGRPO(group_size=3)], ids=["d1", "coupled_grpo"])
@pytest.mark.parametrize("name", FAMILIES)
def test_rl(name: str, settings: D1 | CoupledGRPO, shared: Path, tmp_path: Path) -> None:
    job = engine(load(shared, name, tmp_path))
    algorithm = settings.build(job.spec)
    job.keep_reference()
    decoding = DecodingConfig(max_new_tokens=6, temperature=1.0)
    rollouts = job.rollout([PROMPTS[0]] * 3, decoding, KEYS, torch.zeros(3, dtype=torch.int64))
    graded = outcome(rollouts, torch.tensor([0.0, 0.5, 1.0]))
    views = algorithm.views(graded, 0)
    advantage_BKT = algorithm.credit(graded, views)
    old = job.score(rollouts.seqs, views).logp_BKT
    reference = job.score(rollouts.seqs, views, reference=True).logp_BKT
    batch = Batch(rollouts.seqs, views, rollouts.counted_BT, old, reference, advantage_BKT)
    metrics = job.update(batch, algorithm).mean()
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-4) and metrics["kl"] == pytest.approx(0.0, abs=1e-4)
    assert metrics["grad_norm"] > 0 and not metrics["skipped_updates"]
    moved = (job.score(rollouts.seqs, views).logp_BKT - old).sum((1, 2))
    assert moved[2] > moved[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_decode(name: str, shared: Path, tmp_path: Path) -> None:
    job = engine(load(shared, name, tmp_path))
    decoding = DecodingConfig(max_new_tokens=9, block_size=4, steps=4, stop_at_eos=False)
    together = job.rollout(PROMPTS, decoding, KEYS, torch.arange(3))
    assert not (together.seqs.ids_BT[together.seqs.response_BT] == job.spec.mask_id).any()
    for row, prompt in enumerate(PROMPTS):
        alone = job.rollout([prompt], decoding, KEYS[row : row + 1], torch.arange(1))
        assert torch.equal(together.seqs.ids_BT[row][: len(prompt) + 9], alone.seqs.ids_BT[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_export(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint = load(shared, name, tmp_path)
    checkpoint.config["mask_token_id"] = checkpoint.model.spec.mask_id
    save_model(tmp_path / "out", checkpoint)
    ids_NT, lengths_N = torch.arange(20).view(2, 10), torch.tensor([10, 10])
    expected = checkpoint.model.hidden(ids_NT, lengths_N)
    assert torch.equal(load_checkpoint(str(tmp_path / "out")).model.hidden(ids_NT, lengths_N), expected)
