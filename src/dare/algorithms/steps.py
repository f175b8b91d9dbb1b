"""What algorithms share that score tokens in the states in which they were decided."""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from dare.algorithms.base import ViewRule
from dare.algorithms.config import ClippedConfig, Records
from dare.algorithms.units import SEQUENCE, STEP, VIEW_TOKEN, Norm, Unit, block_unit
from dare.batch import Batch
from dare.diffusion.trajectory import trajectory
from dare.errors import DareError
from dare.models.base import ModelSpec


class StepsConfig(ClippedConfig):
    """``shrink`` that many consecutive steps count as one. ``ratio`` what a ratio is taken over: a token, the tokens of
    one step, of one block (block-causal models) or of the whole response; with ``length_norm`` over its tokens' number
    (GSPO, arXiv 2507.18071, equation 7).
    """

    records: ClassVar[Records] = "steps"

    shrink: PositiveInt = 1
    ratio: Literal["token", "step", "block", "sequence"] = "token"
    length_norm: bool = False

    def transitions(self, spec: ModelSpec) -> ViewRule:
        """Every (merged) step of the rollout as a view; the same for each inner update."""
        return lambda outcome, inner: trajectory(outcome.rollouts, block_size=spec.block_size, shrink=self.shrink)

    def units(self, spec: ModelSpec) -> dict[str, Unit | Norm | None]:
        """The unit of ``ratio`` and what it is divided by."""
        if self.ratio == "block" and spec.block_size is None:
            raise DareError(f"algorithm.ratio=block: {spec.family} has no blocks; use step or sequence")
        by_name = {"token": VIEW_TOKEN, "step": STEP, "sequence": SEQUENCE}
        unit = by_name.get(self.ratio) or block_unit(spec.block_size or 1)
        return {"unit": unit, "norm": _tokens_of(unit) if self.length_norm else None}


def _tokens_of(unit: Unit) -> Norm:
    def count(score: Tensor, batch: Batch) -> Tensor:
        ones_BKT = torch.ones(batch.views.weight_BKT.shape, dtype=score.dtype, device=score.device)
        return unit.reduce(ones_BKT, batch.views).clamp_min(1)

    return count
