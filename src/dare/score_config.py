"""Settings of ``dare score``."""

from typing import Literal

from pydantic import Field, PositiveInt

from dare.config import Config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig


class ScoreConfig(Config):
    """``draws`` independent draws of ``count`` views each; ``beta`` of the upper bound; ``block_size`` a multiple of
    the model's own (block-causal models only, None: the model's).

    Without ``--prompt`` the ``split`` of the task is scored; its answers have at most ``decoding.max_new_tokens``
    tokens, and ``eos_padding`` says how far EOS goes on behind them, as in SFT.
    """

    seed: int = Field(0, ge=0)
    draws: int = Field(16, ge=2)
    count: int = Field(8, ge=2)
    beta: float = Field(1.5, gt=0)
    block_size: PositiveInt | None = None
    split: Literal["train", "test"] = "test"
    eos_padding: Literal["none", "one_block", "to_length"] = "none"
    task: TaskConfig = TaskConfig()
    decoding: DecodingConfig = DecodingConfig()
    engine: EngineConfig = EngineConfig()
