"""What a trainer asks of an engine, and what an engine asks of an objective."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import Watch
from dare.diffusion.likelihood import Scores
from dare.meter import Meter
from dare.models.base import ModelSpec
from dare.types import Rollouts, Sequences, Views


class Objective(Protocol):
    """A loss that sees the model only through the log-probabilities of the views."""

    def units(self, batch: Batch) -> float:
        """Return what the summed loss of the whole batch is divided by, once."""
        ...

    def needs_values(self, batch: Batch) -> bool:
        """Return whether the gradient depends on the log-probabilities themselves."""
        ...

    @property
    def reads_entropy(self) -> bool:
        """Whether ``batch.entropy_BKT``, differentiable, and ``batch.best_BKT`` must be there."""
        ...

    def __call__(self, logp_BKT: Tensor, batch: Batch, /) -> tuple[Tensor, Meter]:
        """Return the summed loss of a micro-batch, differentiable in ``logp_BKT``, and its metrics."""
        ...


class Engine(Protocol):
    """Owns parameters, optimiser and devices."""

    spec: ModelSpec

    def rollout(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        key_B: Tensor,
        group_B: Tensor,
        watch: Watch | None = None,
        *,
        predictions: bool = False,
    ) -> Rollouts:
        """Decode one response per prompt; ``watch`` hears of every pass, ``predictions`` records what it predicts."""
        ...

    def score(self, seqs: Sequences, views: Views, *, reference: bool = False) -> Scores:
        """Return log-probabilities of the live (or the reference) policy, without a graph."""
        ...

    def update(self, batch: Batch, objective: Objective) -> Meter:
        """Take one optimiser step and return its metrics."""
        ...

    def values(self, seqs: Sequences, views: Views) -> Tensor:
        """Return the value model's ``value_BKT``, without a graph; zero where a view does not score."""
        ...

    def update_values(self, batch: Batch, objective: Objective) -> Meter:
        """Take one optimiser step of the value model and return its metrics."""
        ...

    def save(self, folder: Path) -> None:
        """Write model and optimiser state."""
        ...

    def load(self, folder: Path) -> None:
        """Restore what ``save`` wrote, bit for bit."""
        ...
