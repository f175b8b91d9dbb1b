"""SDAR, SDAR-MoE and TraDo (arXiv 2510.06303, 2509.06949): Qwen3 trained further as a block-diffusion model."""

from collections.abc import Mapping
from typing import Any

from dare.models import qwen
from dare.models.base import ModelSpec
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

BLOCK_SIZE = 4
"""The published chat models; ``block_size`` in ``config.json`` takes precedence."""


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read the ``config.json`` of a dense or sparse SDAR model."""
    block_size = config.get("block_size", BLOCK_SIZE)
    return qwen.architecture(config, "SDAR", qk_norm=True), qwen.spec(config, ids, "sdar", block_size)
