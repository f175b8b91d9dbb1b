"""MDPO: credit for every denoising step, from the reward of what the step predicted (arXiv 2508.13148)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from dare.algorithms.advantage import group_std
from dare.algorithms.base import Algorithm
from dare.algorithms.config import ClippedConfig, KLName, Records
from dare.algorithms.units import CHOSEN_TOKEN
from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.diffusion.trajectory import replay
from dare.models.base import ModelSpec
from dare.types import Outcome, Views


class MDPO(ClippedConfig):
    """The authors' run that matches the paper; their demo takes 16 steps, temperature 0.1 and no divergence.

    ``trained_steps`` passes with the largest advantages of the whole batch are learnt from: all that was masked before
    the pass, towards what the pass predicted, at the ``temperature`` of the rollout. A token's loss is weighted by its
    confidence. Rollouts take the memory of their text and its confidences once per pass.
    """

    records: ClassVar[Records] = "predictions"
    fixed: ClassVar[frozenset[str]] = frozenset({"baseline", "aggregate", "kl_in"})
    refuses: ClassVar[Mapping[str, str]] = {
        "block_causal": "every pass predicts the whole response, and a block-causal model does not see later blocks"
    }

    name: Literal["mdpo"] = "mdpo"
    group_size: PositiveInt = 4
    updates: PositiveInt = 1
    kl_coef: float = Field(0.02, ge=0)
    kl: KLName = "k2"
    trained_steps: PositiveInt = 8
    temperature: float = Field(0.4, gt=0)

    def conflict(self, decoding: DecodingConfig) -> str | None:
        """It reads the whole canvas and weighs tokens by a probability."""
        if decoding.cache not in ("auto", "none"):
            return f"every pass predicts the whole response, cache={decoding.cache} reads a part of it; set cache=none"
        if decoding.temperature != self.temperature:
            return f"it scores at algorithm.temperature={self.temperature}; decode at the same temperature"
        unsure = decoding.rule not in ("low_confidence", "maskgit_plus")
        if unsure or decoding.order_temperature > 0 or decoding.eos == "last":
            return (
                "it weighs tokens by their confidence, which must be a probability; set rule=low_confidence, "
                "order_temperature=0 and eos=free"
            )
        return None

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""

        def views(outcome: Outcome, inner: int) -> Views:
            step_BK = self._steps(outcome)[0]
            return replace(predictions(outcome, step_BK, spec.mask_id), temperature=self.temperature)

        def credit(outcome: Outcome, views: Views) -> Tensor:
            step_BK, advantage_BS = self._steps(outcome)
            return (advantage_BS.gather(1, step_BK) * canvas_share(outcome, views))[..., None]

        return self.compose(views=views, credit=credit, unit=CHOSEN_TOKEN, aggregate=mask_mean, fresh_views=False)

    def _steps(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """The steps that every row is trained on, ``[B, K]``, and the advantage of every step, ``[B, S]``."""
        assert outcome.step_reward_BS is not None, "the trainer grades predictions"
        advantage_BS = step_advantage(outcome.step_reward_BS, outcome.rollouts.group_B)
        step_S = torch.arange(advantage_BS.shape[1], device=advantage_BS.device)
        advantage_BS = advantage_BS * (step_S < outcome.rollouts.forwards_B[:, None])
        return top_steps(advantage_BS, self.trained_steps).expand(len(advantage_BS), -1), advantage_BS


def step_advantage(reward_BS: Tensor, group_B: Tensor, *, floor: float = 1e-4) -> Tensor:
    """What each step gained over the one before it plus the mean reward of the later ones, standardised per step over
    the group: (s - mean) / (sample deviation + ``floor``); a group of one gets zero.

    The first step's gain is its reward; after the last step stands its own reward. The paper's constant 1 cancels.
    """
    later_S = torch.arange(reward_BS.shape[1], device=reward_BS.device).flip(0)
    future_BS = (reward_BS.flip(1).cumsum(1).flip(1) - reward_BS) / later_S.clamp_min(1)
    future_BS = torch.where(later_S == 0, reward_BS, future_BS)
    score_BS = reward_BS.diff(dim=1, prepend=torch.zeros_like(reward_BS[:, :1])) + future_BS
    return group_std(score_BS, group_B, floor=floor)


def top_steps(advantage_BS: Tensor, count: int) -> Tensor:
    """The ``count`` steps ``[K]`` of largest sum |A| over the batch, the largest first; all if there are fewer."""
    return advantage_BS.abs().sum(0).topk(min(count, advantage_BS.shape[1])).indices


def predictions(outcome: Outcome, step_BK: Tensor, mask_id: int) -> Views:
    """The canvas before each pass; every mask is scored towards the pass's prediction, weighted by its confidence."""
    rollouts = outcome.rollouts
    assert rollouts.predictions_BST is not None and rollouts.confidence_BST is not None, "the rollout records them"
    canvas = replay(rollouts, step_BK, mask_id)
    masked_BKT = canvas.masked_BKT & (step_BK < rollouts.forwards_B[:, None])[..., None]
    where_BKT = step_BK[..., None].expand(masked_BKT.shape)
    return replace(
        canvas,
        masked_BKT=masked_BKT,
        weight_BKT=masked_BKT.to(canvas.weight_BKT.dtype),
        loss_weight_BKT=rollouts.confidence_BST.gather(1, where_BKT).to(canvas.weight_BKT.dtype),
        ids_BKT=rollouts.predictions_BST.gather(1, where_BKT),
    )


def canvas_share(outcome: Outcome, views: Views) -> Tensor:
    """The paper's lambda ``[B, K]``: response positions over those masked. As a factor of the advantage it scales the
    policy's loss and leaves the divergence alone.
    """
    return outcome.rollouts.seqs.response_BT.sum(1, keepdim=True) / views.masked_BKT.sum(-1).clamp_min(1).double()


def mask_mean(weight: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted sum of all scored tokens over their number, whatever they weigh."""
    return weight, batch.views.scored_BKT.flatten(1).sum(1)
