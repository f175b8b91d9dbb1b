"""Settings that algorithms share; each algorithm's own defaults are its paper's."""

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from dare.algorithms.advantage import BASELINES
from dare.algorithms.aggregate import AGGREGATES
from dare.algorithms.base import Algorithm
from dare.algorithms.kl import KLS
from dare.algorithms.losses import clipped, is_clipped, never
from dare.config import Config
from dare.models.base import ModelSpec

BaselineName = Literal["mean", "std", "leave_one_out"]
KLName = Literal["k1", "k2", "k3"]
AggregateName = Literal["unit_mean", "row_mean", "row_sum", "canvas_mean"]


class AlgorithmConfig(Config):
    """Settings every algorithm has; a subclass sets the paper's defaults and adds its own.

    ``group_size`` responses per prompt; ``updates`` optimiser steps per batch of rollouts. ``baseline`` what an
    advantage is measured against: the group's "mean", also over its deviation ("std"), or the mean of the others
    ("leave_one_out"). ``kl_coef`` weight of the divergence from the starting model, estimated by ``kl`` and either
    added to the loss or, once per response, taken off the reward (``kl_in``). ``aggregate`` how units are averaged
    (``algorithms/aggregate.py``).

    Guards: ``drop_zero_variance`` leaves out prompts whose responses all got the same reward (DAPO, arXiv 2503.14476);
    ``overlong_buffer`` tokens before the end of the canvas over which the reward falls by up to 1 (DAPO, equation 13);
    ``mismatch_cap`` leaves out responses whose tokens the trainer finds this many times more or less probable than the
    decoder did.
    """

    records: ClassVar[Literal["text", "steps"]] = "text"
    """What it reads of a rollout: the final text, or the steps that led to it."""

    name: str
    group_size: PositiveInt
    updates: PositiveInt
    baseline: BaselineName = "mean"
    kl_coef: float = Field(0.0, ge=0)
    kl: KLName = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    aggregate: AggregateName = "unit_mean"
    drop_zero_variance: bool = False
    overlong_buffer: int = Field(0, ge=0)
    mismatch_cap: float | None = Field(None, gt=1)

    @property
    def needs_reference(self) -> bool:
        """Whether the starting model is kept beside the policy."""
        return self.kl_coef > 0

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm for a model."""
        raise NotImplementedError

    def compose(self, **choices: Any) -> Algorithm:
        """An ``Algorithm`` of the shared settings and the given choices, which win."""
        shared = {
            "advantage": BASELINES[self.baseline],
            "kl": KLS[self.kl],
            "kl_coef": self.kl_coef,
            "kl_in_reward": self.kl_in == "reward",
            "aggregate": AGGREGATES[self.aggregate],
            "clips": never,
        }
        return Algorithm(**{**shared, **choices})


class ClippedConfig(AlgorithmConfig):
    """Algorithms with PPO's clipped ratio: it may fall by ``clip_low`` and rise by ``clip_high``; ``dual_clip`` bounds
    the loss of a negative advantage at that many times it.
    """

    clip_low: float = Field(0.2, gt=0, le=1)
    clip_high: float = Field(0.2, gt=0)
    dual_clip: float | None = Field(None, gt=1)

    def compose(self, **choices: Any) -> Algorithm:
        """See ``AlgorithmConfig.compose``."""
        low, high, dual = self.clip_low, self.clip_high, self.dual_clip
        clip = {
            "loss": partial(clipped, low=low, high=high, dual=dual),
            "clips": partial(is_clipped, low=low, high=high, dual=dual),
        }
        return super().compose(**{**clip, **choices})
