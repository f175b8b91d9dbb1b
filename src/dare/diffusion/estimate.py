"""Run a likelihood estimator: the mean of independent draws and its standard error."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dare.diffusion.estimators import Estimator
from dare.diffusion.likelihood import score_views
from dare.diffusion.noise import key
from dare.errors import DareError
from dare.types import Sequences

if TYPE_CHECKING:
    from dare.models.base import DiffusionLM


@dataclass(frozen=True)
class Estimate:
    """``mean_B`` in nats, its Monte-Carlo standard error ``error_B`` (zero where nothing is random), and the model
    passes ``forwards_B`` that the row took.
    """

    mean_B: Tensor
    error_B: Tensor
    forwards_B: Tensor


def estimate(model: "DiffusionLM", seqs: Sequences, estimator: Estimator, key_B: Tensor, draws: int) -> Estimate:
    """Average ``draws`` independent draws, one if nothing is random. The error counts the noise of the views only."""
    if estimator.drawn and draws < 2:
        raise DareError(f"draws={draws}: a standard error needs at least 2 independent draws")
    values, forwards_B = [], torch.zeros_like(seqs.lengths_B)
    for number in range(draws if estimator.drawn else 1):
        views = estimator.views(seqs, key(key_B, "draw", number))
        values.append(estimator.combine(score_views(model, seqs, views).logp_BKT, views).double())
        forwards_B = forwards_B + views.scored_BKT.any(-1).sum(1)
    value_NB = torch.stack(values)
    error_B = value_NB.std(0) / len(values) ** 0.5 if estimator.drawn else torch.zeros_like(value_NB[0])
    return Estimate(value_NB.mean(0), error_B, forwards_B)
