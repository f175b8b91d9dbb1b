"""ESPO: one ratio per sequence, from a coupled ELBO over the canvas length (arXiv 2512.03759)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import BaselineName, ClippedConfig, KLName
from dare.algorithms.units import SEQUENCE, canvas_length
from dare.diffusion.counts import coupled_count
from dare.models.base import ModelSpec


class ESPO(ClippedConfig):
    """Section 4 of the paper: exp((E - E_old) / L), and k2 of the ELBO itself over L; ``pairs`` coupled masks."""

    name: Literal["espo"] = "espo"
    group_size: PositiveInt = 6
    updates: PositiveInt = 8
    baseline: BaselineName = "leave_one_out"
    kl_coef: float = Field(1e-3, ge=0)
    kl: KLName = "k2"
    pairs: PositiveInt = 2

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=drawn(partial(coupled_count, pairs=self.pairs)),
            unit=SEQUENCE,
            norm=canvas_length,
        )
