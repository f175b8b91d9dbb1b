"""How to decode: canvas and blocks, how many positions a step fills, in which order, with which token."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from dare.config import Config
from dare.errors import DareError
from dare.models.base import ModelSpec

_READ_THE_SAMPLER = ("maskgit_plus", "entropy", "margin")
"""Rules whose confidence is taken after temperature and filters."""


class DecodingConfig(Config):
    """Decoding settings; ``docs/decoding.md`` explains each rule and its source.

    Canvas: ``max_new_tokens`` positions after the prompt, decoded ``block_size`` at a time (None: all in one block;
    block-causal models have their own); ``stop_at_eos`` leaves out the blocks after an EOS.

    How many: ``steps`` denoising steps over the whole canvas (None: one token each), shared out over a block by
    ``schedule``; or instead every position that passes ``threshold``, ``factor`` or ``entropy_bound``. Next to a
    threshold, ``steps_bound`` says whether ``steps`` is the least or the most that a step fills.

    Which first: ``rule``, with Gumbel noise of ``order_temperature``; ``eos_discount`` multiplies the confidence of an
    EOS, rising to 1 by the last step; ``eos`` "last" fills it when nothing else is left, "never" not at all.

    Which token: ``temperature`` (0: arg-max), then ``top_k``, ``top_p``, ``min_p``; ``repetition_penalty`` over the
    tokens already there; ``cfg_scale`` classifier-free guidance.

    Second thoughts: ``remask`` takes back the least certain tokens of a block; ``edit_threshold`` replaces a token of
    the block when another is at least this probable, up to ``max_post_steps`` steps after its last mask.

    ``cache`` "auto" is exact: "block" for block-causal models, "none" for others; "prefix" and "dual" approximate.
    """

    max_new_tokens: PositiveInt = 128
    block_size: PositiveInt | None = 32
    stop_at_eos: bool = True
    steps: PositiveInt | None = None
    schedule: Literal["even", "timestep", "ascending"] = "even"
    threshold: float | None = Field(None, ge=0, le=1)
    factor: float | None = Field(None, gt=0)
    entropy_bound: float | None = Field(None, ge=0)
    steps_bound: Literal["minimum", "maximum"] | None = None
    rule: Literal["low_confidence", "maskgit_plus", "entropy", "margin", "random", "left_to_right"] = "low_confidence"
    order_temperature: float = Field(0.0, ge=0)
    eos: Literal["free", "last", "never"] = "free"
    eos_discount: float | None = Field(None, ge=0, le=1)
    temperature: float = Field(0.0, ge=0)
    top_k: PositiveInt | None = None
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float = Field(1.0, ge=1)
    cfg_scale: float = Field(0.0, ge=0)
    remask: Literal["none", "running_confidence"] = "none"
    edit_threshold: float | None = Field(None, ge=0)
    max_post_steps: int = Field(16, ge=0)
    cache: Literal["auto", "none", "block", "prefix", "dual"] = "auto"

    @model_validator(mode="after")
    def _consistent(self) -> "DecodingConfig":
        for conflict, reason in self._conflicts():
            if conflict:
                raise ValueError(reason)
        return self

    def _conflicts(self) -> list[tuple[bool, str]]:
        bounds = [name for name in ("threshold", "factor", "entropy_bound") if getattr(self, name) is not None]
        bounded, probable = bool(bounds), self.rule in ("low_confidence", "maskgit_plus")
        filters = [name for name in ("top_k", "top_p", "min_p") if getattr(self, name) is not None]
        blind = self.temperature == 0 and self.rule not in _READ_THE_SAMPLER
        return [
            (len(bounds) > 1, f"{' and '.join(bounds)} each decide how many tokens a step fills; keep one of them"),
            (
                bounds == ["threshold"] and self.steps is not None and self.steps_bound is None,
                "threshold and steps together need steps_bound=minimum or steps_bound=maximum",
            ),
            (
                bool({"factor", "entropy_bound"} & set(bounds)) and self.steps is not None,
                f"steps has no effect with {' '.join(bounds)}; remove one of them",
            ),
            (
                self.steps_bound is not None and (self.threshold is None or self.steps is None),
                "steps_bound says how steps bounds a threshold; set threshold and steps, or remove it",
            ),
            (
                (self.threshold is not None or self.factor is not None) and not probable,
                f"{' '.join(bounds)} compares probabilities, rule={self.rule} has none; use low_confidence or "
                "maskgit_plus",
            ),
            (
                self.entropy_bound is not None and self.rule != "entropy",
                f"entropy_bound adds up entropies; set rule=entropy (now {self.rule})",
            ),
            (
                self.schedule != "even" and bounded and self.steps_bound is None,
                f"schedule={self.schedule} has no effect with {' '.join(bounds)}; remove one of them",
            ),
            (
                self.schedule == "ascending" and self.steps is not None,
                "schedule=ascending fixes the number of steps (1, 2, 4, ... tokens); remove steps",
            ),
            (
                self.order_temperature > 0 and (bounded or self.rule == "random"),
                f"order_temperature blurs the order, which {' '.join(bounds) or 'rule=random'} rules out; set it to 0",
            ),
            (
                bool(filters) and blind,
                f"{' '.join(filters)} has no effect at temperature=0 with rule={self.rule}; raise the temperature or "
                "remove it",
            ),
            (
                self.eos != "free" and self.eos_discount is not None,
                f"eos={self.eos} already decides about EOS; remove eos_discount",
            ),
            (
                self.eos_discount is not None and not probable and self.rule != "margin",
                f"eos_discount multiplies a probability, rule={self.rule} has none; use low_confidence or maskgit_plus",
            ),
            (
                self.remask != "none" and (bounded or self.edit_threshold is not None),
                "remask follows the schedule of steps; remove threshold, factor, entropy_bound and edit_threshold",
            ),
            (
                self.cfg_scale > 0 and self.cache not in ("auto", "none"),
                f"cfg_scale reads the canvas a second time without the prompt, which cache={self.cache} does not "
                "hold; set cache=none",
            ),
        ]

    @property
    def edits(self) -> bool:
        """Whether a decided token may be replaced."""
        return self.edit_threshold is not None

    @property
    def left_to_right(self) -> bool:
        """Whether tokens are decided in reading order, one at a time."""
        one_each = self.steps in (None, self.max_new_tokens) and self.schedule != "ascending"
        return self.rule == "left_to_right" and one_each and not self.rewrites

    @property
    def fixed_passes(self) -> int | None:
        """Passes of a row, where steps alone decide and share out evenly over the blocks; None elsewhere."""
        tokens, steps = self.max_new_tokens, self.steps or self.max_new_tokens
        size = min(self.block_size or tokens, tokens)
        even = self.schedule == "even" and steps <= tokens and tokens % size == 0 and steps * size % tokens == 0
        bounded = any(bound is not None for bound in (self.threshold, self.factor, self.entropy_bound))
        return steps if even and not (bounded or self.edits or self.stop_at_eos) else None

    @property
    def rewrites(self) -> bool:
        """Whether a position may be decided more than once."""
        return self.remask != "none" or self.edits

    def block_for(self, spec: ModelSpec) -> int:
        """Positions per block under this model."""
        return spec.block_size or self.block_size or self.max_new_tokens

    def steps_for(self, block_size: int) -> int:
        """Denoising steps of one block of ``block_size`` positions, rounded up, at least one."""
        steps = self.steps or self.max_new_tokens
        return max(1, -(-steps * min(block_size, self.max_new_tokens) // self.max_new_tokens))

    def cache_for(self, spec: ModelSpec) -> str:
        """The cache "auto" stands for; a cache the model's attention cannot use raises ``DareError``."""
        block_causal = spec.attention == "block_causal"
        if self.cache == "auto":
            return "block" if block_causal and not self.cfg_scale else "none"
        if self.cache != "none" and (self.cache == "block") != block_causal:
            kind, fix = ("block-causal", "block") if block_causal else ("full-attention", "prefix or dual")
            raise DareError(f"decoding.cache={self.cache} does not fit a {kind} model; use none or {fix}")
        return self.cache
