"""LLaDA-MoE (arXiv 2509.24389): a masked model with the layers of OLMoE (arXiv 2409.02060), queries and keys normed per
head.
"""

from collections.abc import Mapping
from typing import Any

from dare.models import qwen
from dare.models.base import ModelSpec, require
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

ARCHITECTURES = ("LLaDAMoEModelLM", "LLaDAMoEModel")
"""Both spellings name the same tensors."""

_SUPPORTED = {
    "clip_qkv": None,
    "partial_rotary_factor": 1.0,
    "shared_expert_intermediate_size": None,
    "moe_router_score_function": "softmax",
    "moe_router_enable_expert_bias": False,
}


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read LLaDA-MoE's ``config.json``, where null means unset; only models whose every layer is sparse are supported.

    Its own code keeps the router's probabilities as they are, whatever ``norm_topk_prob`` says.
    """
    stated = {key: value for key, value in config.items() if value is not None}
    require(stated, "LLaDA-MoE", {**_SUPPORTED, "moe_layer_freq": [1] * config["num_hidden_layers"]})
    usual = {
        **config,
        "num_key_value_heads": config.get("num_key_value_heads") or config["num_attention_heads"],
        "intermediate_size": config["expert_intermediate_size"],
        "moe_intermediate_size": config["expert_intermediate_size"],
        "norm_topk_prob": False,
    }
    architecture = qwen.architecture(usual, "LLaDA-MoE", qk_norm=bool(config["qk_layernorm"]))
    return architecture, qwen.spec(config, ids, "llada_moe", None)
