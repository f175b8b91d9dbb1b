"""Settings of ``dare serve``."""

from typing import Literal

from pydantic import Field, PositiveInt

from dare.config import Config
from dare.decoding.config import DecodingConfig


class ServeConfig(Config):
    """``port`` 0 takes a free one; ``name`` is the model's name in requests (None: as given on the command line);
    ``decoding`` holds for whatever a request leaves open.

    ``rows`` answers are decoded at once, ``queue`` more may wait. Answers that differ in their decoding settings, or
    in length by more than a factor of two, cannot share a forward pass: ``groups`` such sets take turns.
    """

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    name: str | None = None
    seed: int = Field(0, ge=0)
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    rows: PositiveInt = 32
    queue: PositiveInt = 1024
    groups: PositiveInt = 4
    decoding: DecodingConfig = DecodingConfig()
