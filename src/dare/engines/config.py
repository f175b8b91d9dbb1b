"""Settings of the optimiser and of how a batch is cut to fit memory."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from dare.config import Config


class OptimConfig(Config):
    """AdamW (arXiv 1711.05101) with linear warm-up, then constant or cosine to zero over ``train.steps``.

    ``warmup`` is a number of optimiser steps. ``max_skipped`` stops the run after that many consecutive updates whose
    loss or gradient was not finite; until then each is skipped and counted.

    ``state`` where the moments live: with the "weights", in "main_memory" beside float32 masters, where the step is
    then taken, or in "eight_bit" numbers (arXiv 2110.02861; torchao).
    """

    lr: float = Field(1e-5, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0)
    state: Literal["weights", "main_memory", "eight_bit"] = "weights"
    warmup: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    max_grad_norm: float = Field(1.0, gt=0)
    max_skipped: PositiveInt = 5


class EngineConfig(Config):
    """``micro_batch`` rows per training pass, fewer where they would exceed ``micro_tokens`` tokens in all (a longer
    row goes alone); ``recompute`` keeps only what enters each layer for the backward pass, which computes the rest
    again; ``decode_batch`` rows decoded together, fewer where rows times their length would exceed ``decode_tokens``
    positions. None of them changes a result.

    ``compile`` has ``torch.compile`` fuse the MLPs of training and scoring, which changes results by rounding alone;
    ``cut`` reads log-probabilities by the kernels of the cut-cross-entropy library (GPU).

    ``dtype`` of the weights; "auto" is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow.

    ``rollout_engine`` who decodes in an evaluation: this process, or the server at ``rollout_url`` (``dare serve``,
    SGLang or vLLM; ``docs/serving.md``). ``rollout_step_maps`` asks SGLang for the step that decided each token.
    """

    name: Literal["local"] = "local"
    device: str = "cpu"
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    micro_batch: PositiveInt = 64
    micro_tokens: PositiveInt | None = None
    recompute: bool = False
    compile: bool = False
    cut: bool = False
    decode_batch: PositiveInt = 128
    decode_tokens: PositiveInt = 2**16
    rollout_engine: Literal["local", "dare", "sglang", "vllm"] = "local"
    rollout_url: str | None = None
    rollout_step_maps: bool = False

    @property
    def precision(self) -> str:
        """The type that ``dtype`` stands for."""
        return self.dtype if self.dtype != "auto" else "float32" if self.device == "cpu" else "bfloat16"

    @property
    def decode_limits(self) -> dict[str, int]:
        """What bounds a decoding pass, as ``infill`` takes it."""
        return {"rows": self.decode_batch, "tokens": self.decode_tokens}

    @model_validator(mode="after")
    def _has_a_server(self) -> "EngineConfig":
        if (self.rollout_engine == "local") != (self.rollout_url is None):
            raise ValueError(
                f"rollout_engine={self.rollout_engine} with rollout_url={self.rollout_url}: local takes no URL, the "
                "others need one"
            )
        if self.rollout_step_maps and self.rollout_engine != "sglang":
            raise ValueError(f"rollout_step_maps has no effect with rollout_engine={self.rollout_engine}; remove it")
        return self
