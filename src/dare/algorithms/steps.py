"""What algorithms share that score tokens in the states in which they were decided."""

from collections.abc import Mapping
from dataclasses import replace
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
    """``shrink`` that many consecutive steps count as one (None: as many as the paper merges for such a model).
    ``ratio`` what a ratio is taken over: a token, the tokens of one step, of one block (block-causal models) or of the
    whole response; with ``length_norm`` over its tokens' number (GSPO, arXiv 2507.18071, equation 7).
    """

    records: ClassVar[Records] = "steps"
    merged: ClassVar[Mapping[str, int]] = {"full": 1, "block_causal": 1}
    """Steps that the paper merges, by the model's attention."""

    shrink: PositiveInt | None = None
    ratio: Literal["token", "step", "block", "sequence"] = "token"
    length_norm: bool = False

    def transitions(self, spec: ModelSpec) -> ViewRule:
        """Every (merged) step of the rollout as a view; the same for each inner update."""
        shrink = self.shrink or self.merged[spec.attention]
        return lambda outcome, inner: trajectory(outcome.rollouts, block_size=spec.block_size, shrink=shrink)

    def tokens(self, spec: ModelSpec) -> ViewRule:
        """The same views, in which every token weighs the same, however many were decided with it."""
        views = self.transitions(spec)
        return lambda outcome, inner: replace(views(outcome, inner), loss_weight_BKT=None)

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
