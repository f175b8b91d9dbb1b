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
from dare.types import Outcome, Rollouts, Sequences, Views
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
    views = algorithm.views(outcome(text_rollouts(seqs, f"views{seed}")), 0)
    width = int(seqs.lengths_B.max())
    old, reference = (_noise(views.scored_BKT, width, seed + i) - 2 for i in (1, 2))
    counted_BT = seqs.response_BT & ~((seqs.ids_BT == 1) & (torch.arange(seqs.ids_BT.shape[1]) == 4))
    advantage_BKT = torch.tensor([1.5, -1.0, 0.0, 0.3, -0.8], dtype=torch.float64)[:, None, None]
    return Batch(seqs, views, counted_BT, old, reference, advantage_BKT)


def text_rollouts(seqs: Sequences, name: str = "test") -> Rollouts:
    """Rollouts of which only the text is known; each response was decided from left to right."""
    rows = len(seqs.ids_BT)
    step_BT = torch.where(seqs.response_BT, seqs.response_BT.long().cumsum(1) - 1, -1)
    return Rollouts(
        seqs=seqs,
        counted_BT=seqs.response_BT,
        unmask_step_BT=step_BT,
        group_B=torch.arange(rows),
        key_B=keys(rows, name),
        forwards_B=step_BT.amax(1) + 1,
        logp_BT=torch.zeros(step_BT.shape, dtype=torch.float64),
    )


def outcome(rollouts: Rollouts, reward_B: torch.Tensor | None = None) -> Outcome:
    """Rollouts with the given rewards, or none."""
    nothing_B = torch.zeros(len(rollouts.group_B), dtype=torch.float64)
    return Outcome(rollouts, nothing_B if reward_B is None else reward_B)


def one_view(masked_BT: torch.Tensor, scored_BT: torch.Tensor | None = None) -> Views:
    """A single view of weight one."""
    weight_BT = (masked_BT if scored_BT is None else scored_BT).double()
    return Views(masked_BT[:, None], weight_BT[:, None], torch.ones_like(weight_BT)[:, None])


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
