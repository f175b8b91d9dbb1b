"""Settings that algorithms share; each algorithm's own defaults are its paper's."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from dare.algorithms.advantage import BASELINES, per_response
from dare.algorithms.aggregate import AGGREGATES
from dare.algorithms.base import Algorithm
from dare.algorithms.kl import KLS
from dare.algorithms.losses import clipped, is_clipped, never
from dare.config import Config
from dare.decoding.config import DecodingConfig
from dare.diffusion.noise import key
from dare.models.base import ModelSpec

BaselineName = Literal["mean", "std", "z_score", "leave_one_out"]
Records = Literal["text", "steps", "predictions"]
KLName = Literal["k1", "k2", "k3"]
AggregateName = Literal["unit_mean", "row_mean", "row_sum", "canvas_mean"]


class AlgorithmConfig(Config):
    """Settings every algorithm has; a subclass sets the paper's defaults and adds its own.

    ``group_size`` responses per prompt; ``updates`` optimiser steps per batch of rollouts. ``baseline`` what an
    advantage is measured against: the group's "mean", also over the deviation of a sample ("std") or of the group
    itself ("z_score"), or the mean of the others ("leave_one_out"). ``kl_coef`` weight of the divergence from the
    starting model, or from the policy that made the rollouts (``kl_to``), estimated by ``kl`` and either added to the
    loss or, once per response, taken off the reward (``kl_in``). ``aggregate`` how units are averaged
    (``algorithms/aggregate.py``).

    Guards: ``drop_zero_variance`` leaves out prompts whose responses all got the same reward (DAPO, arXiv 2503.14476),
    ``success_range`` those whose mean reward lies outside; ``truncated_is_wrong`` gives an answer without an end no
    reward;
    ``overlong_buffer`` tokens before the end of the canvas over which the reward falls by up to 1 (DAPO, equation 13);
    ``mismatch_cap`` leaves out responses whose tokens the trainer finds this many times more or less probable than the
    decoder did.
    """

    records: ClassVar[Records] = "text"
    """What it reads of a rollout: the final text, the steps that led to it, or what each made of the whole text."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Shared settings that have no place in it: they cannot be changed."""
    refuses: ClassVar[Mapping[str, str]] = {}
    """Kinds of attention ("full", "block_causal") it is not defined for, and why."""

    name: str
    group_size: PositiveInt
    updates: PositiveInt
    baseline: BaselineName = "mean"
    kl_coef: float = Field(0.0, ge=0)
    kl: KLName = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    kl_to: Literal["start", "behaviour"] = "start"
    aggregate: AggregateName = "unit_mean"
    drop_zero_variance: bool = False
    success_range: tuple[float, float] | None = None
    truncated_is_wrong: bool = False
    overlong_buffer: int = Field(0, ge=0)
    mismatch_cap: float | None = Field(None, gt=1)

    @model_validator(mode="after")
    def _leaves_alone(self) -> Self:
        for name in sorted(self.fixed):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}={getattr(self, name)} has no effect in {self.name}; remove it")
        return self

    @property
    def needs_reference(self) -> bool:
        """Whether the starting model is kept beside the policy."""
        return self.kl_coef > 0 and self.kl_to == "start"

    @property
    def critic_lr(self) -> float | None:
        """Learning rate of the value model beside the policy; None: there is none."""
        return None

    def conflict(self, decoding: DecodingConfig) -> str | None:
        """Why this way of decoding does not suit the algorithm, and the fix; None where it does."""
        if self.records == "steps" and decoding.rewrites:
            return "it replays each token's only decision; remask and edit_threshold take decisions back, remove them"
        return None

    def noise_keys(self, prompt_B: Tensor, sample_B: Tensor) -> Tensor:
        """Key of the noise that decodes each response, from its prompt's key and its number in the group."""
        return key(prompt_B, sample_B)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm for a model."""
        raise NotImplementedError

    def compose(self, **choices: Any) -> Algorithm:
        """An ``Algorithm`` of the shared settings and the given choices, which win."""
        shared = {
            "credit": per_response(BASELINES[self.baseline]),
            "kl": KLS[self.kl],
            "kl_coef": self.kl_coef,
            "kl_in_reward": self.kl_in == "reward",
            "kl_to_behaviour": self.kl_to == "behaviour",
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
