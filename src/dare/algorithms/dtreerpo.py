"""d-TreeRPO: answers that share their first denoising steps, and credit for each branch (arXiv 2512.09675)."""

import math
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from dare.algorithms.base import Algorithm
from dare.algorithms.config import ClippedConfig, Records
from dare.algorithms.tree import edge_mean, edge_views, first_leaves, imitate, tree_advantage
from dare.algorithms.units import CHOSEN_TOKEN
from dare.decoding.config import DecodingConfig
from dare.diffusion.noise import key
from dare.models.base import ModelSpec
from dare.types import Outcome, Views


class DTreeRPO(ClippedConfig):
    """The passes of a rollout are cut into ``levels`` equal spans. The root branches into ``roots`` nodes, every other
    node into ``branches``; the ``group_size`` leaves are a group's rows, which share noise until their ways part. An
    edge scores what its child decided up to the child's first EOS, all at once in the parent's canvas.

    Self-distillation draws the parent towards its better children, in the ratio softmax(advantage / temperature), with
    weight ``distill`` (exp(``distill_growth`` u) - 1) / (exp(``distill_growth``) - 1) and temperature
    ``distill_temperature`` (1 - u)^``distill_cooling``, u being the share of the run behind it.

    All edges of a step enter each of the ``updates``; the authors take as many, but per parent and in random order.
    """

    records: ClassVar[Records] = "steps"
    fixed: ClassVar[frozenset[str]] = frozenset({"baseline", "aggregate", "kl_in"})
    refuses: ClassVar[Mapping[str, str]] = {
        "block_causal": "a parent's canvas has masks in several blocks, which [noised | clean] cannot show"
    }

    name: Literal["dtreerpo"] = "dtreerpo"
    group_size: PositiveInt = 16
    updates: PositiveInt = 12
    kl_coef: float = Field(0.01, ge=0)
    clip_low: float = Field(0.4, gt=0, le=1)
    clip_high: float = Field(0.4, gt=0)
    roots: PositiveInt = 4
    branches: PositiveInt = 4
    levels: PositiveInt = 2
    distill: float = Field(3e-3, ge=0)
    distill_growth: float = Field(2.0, gt=0)
    distill_temperature: float = Field(2.0, gt=0)
    distill_cooling: float = Field(0.7, ge=0)

    @model_validator(mode="after")
    def _whole_trees(self) -> Self:
        if self.group_size != self._leaves[0]:
            raise ValueError(
                f"group_size={self.group_size}, but roots={self.roots}, branches={self.branches} and "
                f"levels={self.levels} give {self._leaves[0]} leaves; set group_size={self._leaves[0]}"
            )
        if self.mismatch_cap is not None:
            raise ValueError("mismatch_cap leaves out single leaves, and a tree is learnt from whole; remove it")
        if self.distill and (self.drop_zero_variance or self.success_range is not None):
            raise ValueError(
                "self-distillation is a mean over all trees of a step, drop_zero_variance and success_range leave some "
                "out; remove them or set distill=0"
            )
        return self

    def conflict(self, decoding: DecodingConfig) -> str | None:
        """Its branches part after a given number of passes."""
        if reason := super().conflict(decoding):
            return reason
        if decoding.fixed_passes is None:
            return (
                "all branches must take the same number of passes; set stop_at_eos=false, schedule=even, a block_size "
                "that divides max_new_tokens and steps that divide evenly among the blocks, and remove thresholds"
            )
        if decoding.fixed_passes < self.levels:
            return f"{decoding.fixed_passes} passes cannot be cut into levels={self.levels}; raise steps"
        return None

    def noise_keys(self, prompt_B: Tensor, sample_B: Tensor) -> Tensor:
        """Keys ``[B, levels]``: leaves share that of a level if they hang on one node of it."""
        node_BL = first_leaves(sample_B, self._leaves)[:, 1:]
        return key(prompt_B[:, None], torch.arange(self.levels, device=prompt_B.device), node_BL)

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        return self.compose(
            views=partial(self._views, spec.eos_ids),
            credit=self._credit,
            unit=CHOSEN_TOKEN,
            aggregate=edge_mean,
            fresh_views=False,
        )

    @property
    def _leaves(self) -> list[int]:
        """Leaves under the root, then under a node of each level."""
        below = [self.branches ** (self.levels - 1 - level) for level in range(self.levels)]
        return [self.roots * below[0], *below]

    def _nodes(self, outcome: Outcome) -> Tensor:
        return first_leaves(torch.arange(len(outcome.reward_B), device=outcome.reward_B.device), self._leaves)

    def _credit(self, outcome: Outcome, views: Views) -> Tensor:
        return tree_advantage(outcome.reward_B, self._nodes(outcome))[..., None]

    def _views(self, eos_ids: tuple[int, ...], outcome: Outcome, inner: int) -> Views:
        node_BL = self._nodes(outcome)
        views = edge_views(outcome.rollouts, node_BL, eos_ids)
        if not self.distill:
            return views
        advantage_BK = tree_advantage(outcome.reward_B, node_BL)
        return imitate(views, advantage_BK, node_BL, *self.distillation(outcome.progress))

    def distillation(self, progress: float) -> tuple[float, float]:
        """Weight and temperature of the self-distillation when a share ``progress`` of the run lies behind."""
        weight = self.distill * math.expm1(self.distill_growth * progress) / math.expm1(self.distill_growth)
        return weight, max(self.distill_temperature * (1 - progress) ** self.distill_cooling, 1e-6)
