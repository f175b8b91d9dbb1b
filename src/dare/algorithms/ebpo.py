"""EBPO: one ratio per sequence, from block-wise ELBOs that share their forward passes (LLaDA2.1, arXiv 2602.08676)."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

from pydantic import PositiveInt

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import BaselineName, ClippedConfig, KLName
from dare.algorithms.units import SEQUENCE, canvas_length
from dare.diffusion.counts import block_count
from dare.models.base import ModelSpec


class EBPO(ClippedConfig):
    """Equations 4 and 5 of the report, which leave open the levels (here stratified), their weights (1 / ``draws``),
    the clip and the advantage. The log ratio grows with the response; ``length_norm`` divides it by the canvas.
    """

    refuses: ClassVar[Mapping[str, str]] = {
        "full": "its estimate noises every block of a clean response at once, which needs a block-causal model"
    }

    name: Literal["ebpo"] = "ebpo"
    group_size: PositiveInt = 8
    updates: PositiveInt = 1
    baseline: BaselineName = "std"
    kl: KLName = "k2"
    draws: PositiveInt = 16
    length_norm: bool = False

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        assert spec.block_size is not None, self.refuses["full"]
        return self.compose(
            views=drawn(partial(block_count, block_size=spec.block_size, count=self.draws)),
            unit=SEQUENCE,
            norm=canvas_length if self.length_norm else None,
        )
