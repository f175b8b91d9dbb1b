"""Settings of the optimiser and of how a batch is cut to fit memory."""

from typing import Literal

from pydantic import Field, PositiveInt

from dare.config import Config


class OptimConfig(Config):
    """AdamW (arXiv 1711.05101) with linear warm-up, then constant or cosine to zero over ``train.steps``.

    ``warmup`` is a number of optimiser steps. ``max_skipped`` stops the run after that many consecutive updates whose
    loss or gradient was not finite; until then each is skipped and counted.
    """

    lr: float = Field(1e-5, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0)
    warmup: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    max_grad_norm: float = Field(1.0, gt=0)
    max_skipped: PositiveInt = 5


class EngineConfig(Config):
    """``micro_batch`` rows per training pass, ``decode_batch`` rows decoded together; neither changes a result."""

    name: Literal["local"] = "local"
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    micro_batch: PositiveInt = 64
    decode_batch: PositiveInt = 128
