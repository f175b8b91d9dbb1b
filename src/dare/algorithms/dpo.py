"""Preference optimisation on estimates of the evidence lower bound (VRPO, arXiv 2505.19223)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Self

import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from dare.algorithms.units import VIEW, canvas_length
from dare.batch import Batch
from dare.config import Config
from dare.diffusion.counts import block_count, random_count
from dare.diffusion.views import ViewSampler
from dare.meter import Meter
from dare.models.base import ModelSpec


class DPOConfig(Config):
    """What is preferred over what, and how it is estimated; the defaults are those of VRPO.

    The margin m is E(chosen) - E(rejected), each E less the reference policy's unless ``reference_free``, and over the
    response's length with ``length_norm``. ``loss`` "sigmoid": -log sigmoid(beta m - ``target_margin``) (DPO, arXiv
    2305.18290; SimPO, 2405.14734, where both options are on); "ipo": (m - 1 / (2 beta))^2 (arXiv 2310.12036).
    ``sft_weight`` times minus E(chosen) per token is added.

    ``draws`` masks estimate each E: of as many mask rates ("spread", VRPO's optimal allocation) or all of one
    ("repeat"). ``antithetic`` scores the reference on the policy's own masks. ``fresh_masks`` draws new ones in every
    epoch; without, each row keeps its masks and the reference scores it once.
    """

    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    beta: float = Field(0.2, gt=0)
    target_margin: float = Field(0.0, ge=0)
    length_norm: bool = False
    reference_free: bool = False
    sft_weight: float = Field(0.05, ge=0)
    draws: PositiveInt = 8
    budget: Literal["spread", "repeat"] = "spread"
    antithetic: bool = True
    fresh_masks: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.loss == "ipo" and self.target_margin:
            raise ValueError("loss=ipo aims at its own margin, 1 / (2 beta); remove target_margin")
        if self.reference_free and not self.antithetic:
            raise ValueError("antithetic=false is about the reference's masks, and reference_free has none; remove one")
        return self

    def sampler(self, spec: ModelSpec) -> ViewSampler:
        """The masks a model of this kind is scored on."""
        levels = self.draws if self.budget == "spread" else 1
        if spec.block_size is None:
            return partial(random_count, count=self.draws, levels=levels)
        return partial(block_count, block_size=spec.block_size, count=self.draws, levels=levels)

    def build(self) -> "Preference":
        """Compose the objective."""
        losses = {
            "sigmoid": partial(sigmoid, beta=self.beta, target=self.target_margin),
            "ipo": partial(ipo, beta=self.beta),
        }
        return Preference(losses[self.loss], self.length_norm, self.sft_weight)


def sigmoid(margin_P: Tensor, *, beta: float, target: float = 0.0) -> Tensor:
    """-log sigmoid(beta m - target), finite for every finite margin."""
    return -F.logsigmoid(beta * margin_P - target)


def ipo(margin_P: Tensor, *, beta: float) -> Tensor:
    """(m - 1 / (2 beta))^2."""
    return (margin_P - 1 / (2 * beta)).square()


@dataclass(frozen=True)
class Preference:
    """The loss of pairs: row 2i of a batch was chosen over row 2i + 1. P pairs.

    Without ``Batch.reference_BK`` the reference counts nothing.
    """

    loss: Callable[[Tensor], Tensor]
    length_norm: bool = False
    sft_weight: float = 0.0
    reads_entropy: ClassVar[bool] = False

    def units(self, batch: Batch) -> float:
        """Pairs of the batch."""
        return len(batch) / 2

    def needs_values(self, batch: Batch) -> bool:
        """The slope of the loss depends on the margin."""
        return True

    def __call__(self, logp_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss of a micro-batch of whole pairs, and its metrics."""
        # a margin is a small difference of long sums
        score_BK = VIEW.reduce(logp_BKT.double(), batch.views)
        length_B1 = canvas_length(score_BK, batch)
        gain_BK = score_BK if batch.reference_BK is None else score_BK - batch.reference_BK
        if self.length_norm:
            gain_BK = gain_BK / length_B1
        margin_PK = gain_BK[0::2] - gain_BK[1::2]
        loss_P = self.loss(margin_PK.mean(1))
        sft_P = -(score_BK / length_B1)[0::2].mean(1)
        meter = _metrics(loss_P, margin_PK, score_BK)
        meter.add("sft", sft_P)
        return (loss_P + self.sft_weight * sft_P).sum(), meter


def _metrics(loss_P: Tensor, margin_PK: Tensor, score_BK: Tensor) -> Meter:
    """The pairs told apart, and estimates with their Monte-Carlo errors: the deviation over the K views over sqrt K."""
    meter = Meter()
    meter.add("loss", loss_P)
    meter.add("accuracy", (margin_PK.mean(1) > 0).double())
    estimates = {"margin": margin_PK, "elbo/chosen": score_BK[0::2], "elbo/rejected": score_BK[1::2]}
    for name, estimate_PK in estimates.items():
        meter.add(name, estimate_PK.mean(1))
        if (count := estimate_PK.shape[1]) > 1:
            meter.add(f"{name}/error", estimate_PK.std(1) / count**0.5)
    return meter
