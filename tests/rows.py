"""Small batches for the mathematical tests."""

from collections.abc import Sequence

import torch

from dare.algorithms.base import Algorithm
from dare.batch import Batch
from dare.diffusion.noise import key
from dare.diffusion.views import random_rate
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.models.base import DiffusionLM
from dare.models.checkpoint import Checkpoint
from dare.types import Sequences
from toy import toy_model


def pack(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], pad_id: int, extra: int = 0) -> Sequences:
    """Rows of (prompt, response), padded on the right with ``extra`` more columns than needed."""
    lengths_B = torch.tensor([len(prompt) + len(response) for prompt, response in pairs])
    ids_BT = torch.full((len(pairs), int(lengths_B.max()) + extra), pad_id)
    response_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
    for row, (prompt, response) in enumerate(pairs):
        ids_BT[row, : lengths_B[row]] = torch.tensor([*prompt, *response])
        response_BT[row, len(prompt) : lengths_B[row]] = True
    return Sequences(ids_BT, response_BT, lengths_B)


def repeat(seqs: Sequences, rows: int) -> Sequences:
    """The first sequence ``rows`` times."""
    return seqs.select(torch.zeros(rows, dtype=torch.int64))


def keys(rows: int, name: str = "test") -> torch.Tensor:
    """One noise key per row."""
    return key(name, torch.arange(rows))


UNEQUAL = [
    ([0, 1], [1, 0, 2]),
    ([1], [0, 0, 1, 1, 0, 2]),
    ([1, 0, 0, 1], [1]),
    ([0], [1, 1]),
    ([1, 1, 0], [0, 1, 1, 2]),
]
"""Five (prompt, response) pairs of unequal lengths over the toy words."""


def rl_batch(model: DiffusionLM, algorithm: Algorithm, extra: int = 0, seed: int = 0) -> Batch:
    """``UNEQUAL`` with old and reference scores off the live policy, so that ratios lie inside and outside the clip."""
    seqs = pack(UNEQUAL, model.spec.pad_id, extra)
    views = algorithm.views(seqs, keys(len(UNEQUAL), f"views{seed}"))
    width = int(seqs.lengths_B.max())
    old, reference = (_noise(views.scored_BKT, width, seed + i) - 2 for i in (1, 2))
    counted_BT = seqs.response_BT & ~((seqs.ids_BT == 1) & (torch.arange(seqs.ids_BT.shape[1]) == 4))
    advantage_B = torch.tensor([1.5, -1.0, 0.0, 0.3, -0.8], dtype=torch.float64)
    return Batch(seqs, views, counted_BT, old, reference, advantage_B)


def toy_engine(total=10, seed=0, micro_batch=2, **optim):
    checkpoint = Checkpoint(toy_model(seed=seed), {"architectures": ["DareTiny"]}, None)
    return LocalEngine(checkpoint, EngineConfig(micro_batch=micro_batch), OptimConfig(**{"lr": 0.01, **optim}), total)


def weights(engine):
    return [weight.detach().clone() for weight in engine.model.parameters()]


def same_weights(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def sft_batch(engine, step):
    seqs = pack(UNEQUAL, engine.spec.pad_id)
    return Batch(seqs, random_rate(seqs, keys(len(UNEQUAL), f"step{step}")), seqs.response_BT)


def _noise(scored_BKT: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise_BKT = torch.zeros(scored_BKT.shape, dtype=torch.float64)
    noise_BKT[..., :width] = torch.randn(*scored_BKT.shape[:2], width, dtype=torch.float64, generator=generator) * 0.4
    return noise_BKT * scored_BKT
