"""LLaDA2.0 and LLaDA2.1 (arXiv 2512.15745): sparse block-diffusion models of the Ling lineage."""

from collections.abc import Mapping
from typing import Any

from dare.models import qwen
from dare.models.base import ModelSpec, require
from dare.models.moe import Experts
from dare.models.names import LLAMA, Piece, llama_pieces
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

BLOCK_SIZE = 32
_SUPPORTED = {
    "hidden_act": "silu",
    "rope_scaling": None,
    "use_sliding_window": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "using_split_qkv_in_self_attention": False,
}
_NAMES = {
    **LLAMA,
    "embed": "model.word_embeddings",
    "attention.o": "attention.dense",
    "attention.q_norm": "attention.query_layernorm",
    "attention.k_norm": "attention.key_layernorm",
    "mlp.shared.gate": "mlp.shared_experts.gate_proj",
    "mlp.shared.up": "mlp.shared_experts.up_proj",
    "mlp.shared.down": "mlp.shared_experts.down_proj",
}


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read the ``config.json`` of LLaDA2.x; routing that its own code hard-wires is not read from the file."""
    require(config, "LLaDA2", _SUPPORTED)
    architecture = Architecture(
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_size=config["head_dim"],
        rotary_size=int(config["head_dim"] * config["partial_rotary_factor"]),
        mlp_size=config["intermediate_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        qk_norm=True,
        tied=config["tie_word_embeddings"],
        experts=Experts(
            count=config["num_experts"],
            active=config["num_experts_per_tok"],
            size=config["moe_intermediate_size"],
            scoring="sigmoid",
            groups=config["n_group"],
            kept_groups=config["topk_group"],
            scale=config["routed_scaling_factor"],
            shared_size=config["num_shared_experts"] * config["moe_intermediate_size"],
            first_dense=config["first_k_dense_replace"],
        ),
    )
    return architecture, qwen.spec(config, ids, "llada2", config.get("block_size", BLOCK_SIZE))


def pieces(name: str, arch: Architecture) -> list[Piece]:
    """Queries, keys and values are runs of rows of one fused tensor, in this order."""
    for place, part in enumerate(("q", "k", "v")):
        if name.endswith(f".attention.{part}.weight"):
            layer = name.split(".")[1]
            ends = [0, arch.heads, arch.heads + arch.kv_heads, arch.heads + 2 * arch.kv_heads]
            start, stop = (heads * arch.head_size for heads in ends[place : place + 2])
            return [Piece(f"model.layers.{layer}.attention.query_key_value.weight", start, stop)]
    if name.endswith(".router.bias"):
        return [Piece(name.replace("blocks", "model.layers").replace("router.bias", "gate.expert_bias"))]
    return llama_pieces(name, arch, _NAMES)
