"""ESPO: one ratio per sequence, from a coupled ELBO over the canvas length (arXiv 2512.03759)."""

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm, drawn
from dare.algorithms.config import ClippedConfig
from dare.algorithms.units import SEQUENCE, per_unit, response_length
from dare.diffusion.counts import coupled_count
from dare.models.base import ModelSpec


class ESPO(ClippedConfig):
    """Section 4 of the paper: exp((E - E_old) / L), and k2 of the ELBO itself over L; ``pairs`` coupled masks."""

    name: Literal["espo"] = "espo"
    group_size: PositiveInt = 6
    updates: PositiveInt = 8
    baseline: Literal["mean", "std", "leave_one_out"] = "leave_one_out"
    kl_coef: float = Field(1e-3, ge=0)
    kl: Literal["k1", "k2", "k3"] = "k2"
    pairs: PositiveInt = 2

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=drawn(partial(coupled_count, pairs=self.pairs)),
            unit=SEQUENCE,
            norm=lambda score, batch: per_unit(response_length(batch), score),
        )
