"""How to decode: canvas, blocks, steps, commit rule."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from dare.config import Config


class DecodingConfig(Config):
    """Decoding settings.

    ``max_new_tokens`` canvas length; ``block_size`` positions decoded before the next block starts (None: one block;
    block-causal models use their own); ``steps`` denoising steps over the whole canvas (None: one token per step);
    ``threshold`` commits every token at least this probable instead, with rule "threshold".
    """

    max_new_tokens: PositiveInt = 128
    block_size: PositiveInt | None = 32
    steps: PositiveInt | None = None
    rule: Literal["low_confidence", "random", "entropy", "threshold"] = "low_confidence"
    temperature: float = Field(0.0, ge=0)
    threshold: float | None = Field(None, ge=0, le=1)
    stop_at_eos: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> "DecodingConfig":
        if (self.rule == "threshold") != (self.threshold is not None):
            raise ValueError("rule 'threshold' and a value for 'threshold' go together; set both or neither")
        if self.threshold is not None and self.steps is not None:
            raise ValueError("'steps' has no effect with a threshold; remove one of them")
        return self

    def steps_for(self, block_size: int) -> int:
        """Denoising steps of one block of ``block_size`` positions, rounded up, at least one."""
        steps = self.steps or self.max_new_tokens
        return max(1, -(-steps * min(block_size, self.max_new_tokens) // self.max_new_tokens))
