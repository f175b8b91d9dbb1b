"""JustGRPO: the exact likelihood of a rollout that was decoded from left to right (arXiv 2601.15165)."""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt
from torch import Tensor

from dare.algorithms.base import Algorithm
from dare.algorithms.config import BaselineName, ClippedConfig
from dare.algorithms.units import canvas_length
from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.diffusion.trajectory import left_to_right
from dare.models.base import ModelSpec


class JustGRPO(ClippedConfig):
    """One view per position (per position of a block, for block-causal models), under the ``temperature`` of the
    rollout. Tokens behind the first EOS were not decoded and are not scored.
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"aggregate"})

    name: Literal["justgrpo"] = "justgrpo"
    group_size: PositiveInt = 16
    updates: PositiveInt = 1
    baseline: BaselineName = "std"
    temperature: float = Field(1.0, gt=0)

    def conflict(self, decoding: DecodingConfig) -> str | None:
        """It scores the order of a left-to-right decoder."""
        if not decoding.left_to_right:
            return "it scores tokens from left to right, one at a time; set rule=left_to_right and remove steps"
        if decoding.temperature != self.temperature:
            return f"it scores at algorithm.temperature={self.temperature}; decode at the same temperature"
        return None

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=lambda outcome, inner: replace(
                left_to_right(outcome.rollouts.seqs, outcome.rollouts.counted_BT, block_size=spec.block_size),
                temperature=self.temperature,
            ),
            aggregate=taught_rows,
            fresh_views=False,
        )


def taught_rows(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sum of each response over the canvas length, averaged over responses with an advantage; over all if none."""
    assert batch.advantage_BKT is not None, "the trainer assigns credit"
    some_B = (weight != 0).flatten(1).any(1)
    taught_B = some_B & (batch.advantage_BKT != 0).flatten(1).any(1)
    return weight / canvas_length(weight, batch), taught_B if bool(taught_B.any()) else some_B
