"""Dream and DiffuCoder (arXiv 2508.15487, 2506.20639): Qwen2 with attention opened, still predicting the next token."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dare.models import qwen
from dare.models.base import ModelSpec
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture, Transformer


class DreamTransformer(Transformer):
    """Moves every state one position on, so that state t predicts token t; the first position keeps its own."""

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """See ``DiffusionLM.hidden``."""
        raw_NTD = super().hidden(ids_NT, lengths_N, clean_NT=clean_NT)
        return torch.cat([raw_NTD[:, :1], raw_NTD[:, :-1]], dim=1)


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read Dream's ``config.json``."""
    return qwen.architecture(config, "Dream", qkv_bias=True), qwen.spec(config, ids, "dream", None)
