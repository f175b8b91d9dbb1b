"""The Llama lineage as ``transformers`` lays it out: what Dream, SDAR and SDAR-MoE (all Qwen descendants) share."""

from collections.abc import Mapping
from typing import Any

from dare.models.base import ModelSpec, require
from dare.models.moe import Experts
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

_SUPPORTED: dict[str, Any] = {
    "hidden_act": "silu",
    "rope_scaling": None,
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
}


def architecture(
    config: Mapping[str, Any],
    family: str,
    *,
    qkv_bias: bool = False,
    qk_norm: bool = False,
    next_token: bool = False,
) -> Architecture:
    """Read sizes under their usual names; a setting the decoder does not compute is refused."""
    require(config, family, _SUPPORTED)
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return Architecture(
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_size=head_size,
        rotary_size=head_size,
        mlp_size=config["intermediate_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        tied=config.get("tie_word_embeddings", False),
        next_token=next_token,
        experts=_experts(config),
    )


def spec(config: Mapping[str, Any], ids: SpecialIds, family: str, block_size: int | None) -> ModelSpec:
    """A masked model where ``block_size`` is None, else a block-causal one."""
    return ModelSpec(
        family=family,
        mask_id=ids.mask_id,
        eos_ids=ids.eos_ids,
        pad_id=ids.pad_id,
        vocab_size=config["vocab_size"],
        context=config["max_position_embeddings"],
        attention="full" if block_size is None else "block_causal",
        block_size=block_size,
    )


def _experts(config: Mapping[str, Any]) -> Experts | None:
    if "num_experts" not in config:
        return None
    return Experts(
        count=config["num_experts"],
        active=config["num_experts_per_tok"],
        size=config["moe_intermediate_size"],
        normalise=config["norm_topk_prob"],
    )
