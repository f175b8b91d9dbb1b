"""Settings of an evaluation."""

from pathlib import Path

from pydantic import Field

from dare.config import Config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig


class EvalConfig(Config):
    """``name`` labels the result; ``traces`` answers are kept with their denoising steps; ``output`` is optional."""

    name: str = "evaluation"
    output: Path | None = None
    seed: int = Field(0, ge=0)
    traces: int = Field(6, ge=0)
    task: TaskConfig = TaskConfig()
    decoding: DecodingConfig = DecodingConfig()
    engine: EngineConfig = EngineConfig()
