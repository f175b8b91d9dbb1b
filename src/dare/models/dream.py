"""Dream and DiffuCoder (arXiv 2508.15487, 2506.20639): Qwen2 with attention opened, still predicting the next token."""

from collections.abc import Mapping
from typing import Any

from dare.models import qwen
from dare.models.base import ModelSpec
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read Dream's ``config.json``."""
    architecture = qwen.architecture(config, "Dream", qkv_bias=True, next_token=True)
    return architecture, qwen.spec(config, ids, "dream", None)
