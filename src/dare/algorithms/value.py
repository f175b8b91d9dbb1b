"""The value model's part of an algorithm: credit from its expectations, and what it learns from the outcome."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from dare.algorithms.advantage import Credit
from dare.algorithms.gae import at_the_end, discounted, gae, step_order, whiten
from dare.algorithms.units import VIEW_TOKEN
from dare.batch import Batch
from dare.config import Config
from dare.meter import Meter
from dare.types import Outcome, Views


class CriticConfig(Config):
    """A value model with learning rate ``lr``. Rewards lose a factor ``gamma`` per denoising step, errors of the
    expectation ``gamma lam``. One update may move a value by ``clip``.

    ``target`` what it learns: the discounted sum of the rewards ("sum"), or its advantage added to itself ("lambda").
    """

    lr: float = Field(5e-6, gt=0)
    gamma: float = Field(1.0, ge=0, le=1)
    lam: float = Field(1.0, ge=0, le=1)
    clip: float = Field(0.2, gt=0)
    target: Literal["sum", "lambda"] = "sum"

    def choices(self, block_size: int | None, *, whitened: bool = False) -> dict[str, Any]:
        """What an algorithm takes from its value model, as ``AlgorithmConfig.compose`` wants it."""

        def credit(outcome: Outcome, views: Views) -> Tensor:
            step_BT = step_order(views, block_size)
            advantage_BT = self._advantage(outcome, step_BT)
            inside_BT = step_BT >= 0
            if whitened:
                advantage_BT = torch.where(inside_BT, whiten(advantage_BT, inside_BT), 0.0)
            return advantage_BT[:, None]

        def target(outcome: Outcome, views: Views) -> Tensor:
            step_BT = step_order(views, block_size)
            if self.target == "lambda":
                return (self._advantage(outcome, step_BT) + _values(outcome))[:, None]
            return discounted(at_the_end(outcome.reward_B, step_BT), step_BT, gamma=self.gamma)[:, None]

        return {"credit": credit, "value": Value(target=target, clip=self.clip)}

    def _advantage(self, outcome: Outcome, step_BT: Tensor) -> Tensor:
        reward_BT = at_the_end(outcome.reward_B, step_BT)
        return gae(reward_BT, _values(outcome), step_BT, gamma=self.gamma, lam=self.lam)


@dataclass(frozen=True, kw_only=True)
class Value:
    """The objective of a value model V: the mean over tokens of max((V - R)², (clip(V, V_old ± ``clip``) - R)²) / 2.

    ``target`` gives the returns R ``[B, 1, T]``. Where ``Objective`` speaks of log-probabilities, these are values.
    """

    target: Credit
    clip: float
    reads_entropy: ClassVar[bool] = False

    def units(self, batch: Batch) -> float:
        """Number of tokens."""
        return float(VIEW_TOKEN.counted(batch).sum())

    def needs_values(self, batch: Batch) -> bool:
        """A squared error depends on the value."""
        return True

    def __call__(self, value_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss of a micro-batch, differentiable in ``value_BKT``, and its metrics."""
        assert batch.value_BKT is not None and batch.return_BKT is not None, "the trainer asks the value model"
        old_BKT, return_BKT = batch.value_BKT.to(value_BKT.dtype), batch.return_BKT.to(value_BKT.dtype)
        near_BKT = old_BKT + (value_BKT - old_BKT).clamp(-self.clip, self.clip)
        free_BKT, held_BKT = (value_BKT - return_BKT).square() / 2, (near_BKT - return_BKT).square() / 2
        loss_BKT, counted_BKT, meter = torch.maximum(free_BKT, held_BKT), VIEW_TOKEN.counted(batch), Meter()
        meter.add("loss", loss_BKT, counted_BKT)
        meter.add("clip_fraction", (held_BKT > free_BKT).double(), counted_BKT)
        return torch.where(counted_BKT, loss_BKT, 0.0).sum(), meter


def explained(value_BKT: Tensor, return_BKT: Tensor, scored_BKT: Tensor, meter: Meter) -> None:
    """Add the share of the returns' variance that the values explain; nothing where all returns are equal."""
    return_M = return_BKT.expand_as(value_BKT)[scored_BKT].double()
    error_M = return_M - value_BKT[scored_BKT].double()
    whole, left = (float((x_M - x_M.mean()).square().sum()) if len(x_M) else 0.0 for x_M in (return_M, error_M))
    meter.add_ratio("value/explained_variance", whole - left, whole)


def _values(outcome: Outcome) -> Tensor:
    assert outcome.value_BKT is not None, "the trainer asks the value model"
    return outcome.value_BKT.sum(1).to(outcome.reward_B.dtype)
