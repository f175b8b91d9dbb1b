"""LLaDA and LLaDA 1.5 (arXiv 2502.09992, 2505.19223): masked models with the tensor names of their OLMo ancestor."""

from collections.abc import Mapping
from typing import Any

from dare.models.base import ModelSpec, require
from dare.models.names import Piece, translate
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

_SUPPORTED = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "block_group_size": 1,
}
_NAMES = {
    "embed": "model.transformer.wte",
    "norm": "model.transformer.ln_f",
    "unembed": "model.transformer.ff_out",
    "blocks": "model.transformer.blocks",
    "attention_norm": "attn_norm",
    "attention.q": "q_proj",
    "attention.k": "k_proj",
    "attention.v": "v_proj",
    "attention.o": "attn_out",
    "mlp_norm": "ff_norm",
    "mlp.gate": "ff_proj",
    "mlp.up": "up_proj",
    "mlp.down": "ff_out",
}


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read LLaDA's ``config.json``; a setting the decoder does not compute is refused."""
    require(config, "LLaDA", _SUPPORTED)
    head_size = config["d_model"] // config["n_heads"]
    architecture = Architecture(
        hidden_size=config["d_model"],
        layers=config["n_layers"],
        heads=config["n_heads"],
        kv_heads=config["n_kv_heads"],
        head_size=head_size,
        rotary_size=head_size,
        mlp_size=config["mlp_hidden_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        tied=config["weight_tying"],
    )
    spec = ModelSpec(
        family="llada",
        mask_id=ids.mask_id,
        eos_ids=ids.eos_ids,
        pad_id=ids.pad_id,
        vocab_size=config["embedding_size"],
        context=config["max_sequence_length"],
    )
    return architecture, spec


def pieces(name: str, arch: Architecture) -> list[Piece]:
    """``blocks.3.mlp.up.weight`` lies in ``model.transformer.blocks.3.up_proj.weight``."""
    return [Piece(translate(name, _NAMES))]
