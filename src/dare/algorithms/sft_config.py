"""What supervised fine-tuning learns: settings that compose into views and an objective."""

from collections.abc import Callable
from functools import partial
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from dare.algorithms.sft import NegativeElbo, Normalise
from dare.config import Config
from dare.diffusion.corruption import Corruption, Weight, with_wrong_tokens
from dare.diffusion.noise import key
from dare.diffusion.rates import SCHEDULES
from dare.diffusion.trajectory import one_transition
from dare.diffusion.views import MIN_RATE, join_views
from dare.models.base import ModelSpec
from dare.types import Sequences, Views

AnswerViews = Callable[[Sequences, Tensor, Tensor | None], Views]
"""(rows, their noise keys, for recorded orders the pass that decided each position) -> views."""


class EditSettings(Config):
    """``rate`` of the visible answer tokens are replaced by random ones; correcting one weighs ``weight``."""

    rate: float = Field(0.1, gt=0, le=1)
    weight: float = Field(1.0, gt=0)


class ObjectiveConfig(Config):
    """Which answer tokens are masked, and what each of them weighs; docs/training.md has the presets.

    ``order`` "random": masks at a random rate; "trace": the states of a recorded decoding.

    For random masks: ``rate_per`` "row" or "block" draws a rate for each ("auto": per block where the model is
    block-causal); ``schedule`` and ``rates``, lowest and highest, say which; ``weight`` of a masked token is that of
    the evidence lower bound ("elbo"), one ("none"), or by its visible neighbours ("cart", with ``geo_p``);
    ``complementary`` trains on each mask and its complement; ``edit`` shows wrong tokens to be corrected.

    ``next_token`` times the left-to-right loss is added, and ``confidence`` times the entropy of what is predicted
    rightly. ``normalise`` says what the sum is divided by, see
    ``NegativeElbo``.
    """

    order: Literal["random", "trace"] = "random"
    rate_per: Literal["auto", "row", "block"] = "auto"
    schedule: Literal["linear", "cosine"] = "linear"
    rates: tuple[float, float] = (MIN_RATE, 1.0)
    weight: Weight = "elbo"
    geo_p: float = Field(0.3, gt=0, le=1)
    complementary: bool = False
    edit: EditSettings | None = None
    next_token: float = Field(0.0, ge=0)
    confidence: float = Field(0.0, ge=0)
    normalise: Normalise = "row"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        low, high = self.rates
        if not 0 < low < high <= 1:
            raise ValueError(f"rates={list(self.rates)}: give a lowest and a higher rate, both above 0 and at most 1")
        if self.complementary and self.weight == "elbo" and abs(low + high - 1) > 1e-9:
            raise ValueError(
                "complementary=true with weight=elbo: a mask at rate t leaves 1 - t for its complement, so rates="
                f"{[low, high]} must lie evenly around a half; set rates=[{MIN_RATE}, {1 - MIN_RATE}] or weight=none"
            )
        if self.geo_p != _default("geo_p") and self.weight != "cart":
            raise ValueError(f"geo_p={self.geo_p} is read by weight=cart only; remove it or set weight=cart")
        return self

    @model_validator(mode="after")
    def _has_a_divisor(self) -> Self:
        if self.normalise == "masked" and (self.next_token or self.order == "trace"):
            other = f"next_token={self.next_token}" if self.next_token else "order=trace"
            raise ValueError(
                f"normalise=masked with {other}: a single drawn step stands for the whole answer there, so the number "
                "of scored tokens says nothing; set normalise=token"
            )
        return self

    @model_validator(mode="after")
    def _no_masks_beside_a_record(self) -> Self:
        names = ("rate_per", "schedule", "rates", "weight", "complementary", "edit")
        given = [name for name in names if getattr(self, name) != _default(name)]
        if self.order == "trace" and given:
            raise ValueError(
                f"order=trace takes its masks from the record, so {', '.join(given)} has no effect; remove it"
            )
        return self

    def conflict(self, family: str, attention: str) -> str | None:
        """Why a model of this kind cannot be trained so, with the fix."""
        if self.rate_per == "block" and attention == "full":
            return f"rate_per=block: {family} sees the whole text and has no blocks; set rate_per=row"
        if self.weight == "cart" and attention == "block_causal":
            return (
                f"weight=cart counts visible neighbours on both sides, and {family} sees none of a later block and all "
                "of an earlier one; set weight=elbo"
            )
        return None

    def build(self) -> NegativeElbo:
        """Compose the objective."""
        return NegativeElbo(self.normalise, bool(self.next_token), self.confidence)

    def views(self, spec: ModelSpec, words_N: Tensor) -> AnswerViews:
        """Compose the view sampler; ``words_N`` are the tokens that may be shown as wrong ones."""
        noised = partial(self._recorded, spec) if self.order == "trace" else partial(self._masked, spec, words_N)
        return (
            noised
            if not self.next_token
            else lambda *row: join_views(noised(*row), self._left_to_right(spec, *row), row[0])
        )

    def _masked(self, spec: ModelSpec, words_N: Tensor, seqs: Sequences, key_B: Tensor, _: Tensor | None) -> Views:
        corruption = Corruption(
            schedule=SCHEDULES[self.schedule],
            low=self.rates[0],
            high=self.rates[1],
            block_size=None if self.rate_per == "row" else spec.block_size,
            weight=self.weight,
            geo_p=self.geo_p,
            complementary=self.complementary,
        )
        views = corruption(seqs, key_B)
        if self.edit is None:
            return views
        return with_wrong_tokens(views, seqs, key_B, rate=self.edit.rate, weight=self.edit.weight, words_N=words_N)

    def _recorded(self, spec: ModelSpec, seqs: Sequences, key_B: Tensor, step_BT: Tensor | None) -> Views:
        assert step_BT is not None, "the trainer reads the record"
        return one_transition(seqs, step_BT, key_B, block_size=spec.block_size)

    def _left_to_right(self, spec: ModelSpec, seqs: Sequences, key_B: Tensor, _: Tensor | None) -> Views:
        """A position of the answer, or of each block, given what precedes it (an unbiased draw of the chain rule)."""
        column_BT = torch.arange(seqs.ids_BT.shape[1], device=key_B.device).expand_as(seqs.ids_BT)
        views = one_transition(seqs, column_BT, key(key_B, "next_token"), block_size=spec.block_size)
        return Views(views.masked_BKT, self.next_token * views.weight_BKT, views.rate_BKT)


def _default(name: str) -> object:
    return ObjectiveConfig.model_fields[name].default
