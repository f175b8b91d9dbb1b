"""LLaDA (arXiv 2502.09992): a masked model, full attention, the tensor names of its OLMo ancestor."""

import re
from collections.abc import Mapping
from typing import Any

from dare.errors import DareError
from dare.models.base import ModelSpec
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


def parse(config: Mapping[str, Any]) -> tuple[Architecture, ModelSpec]:
    """Read LLaDA's ``config.json``; a setting the decoder does not compute is refused."""
    for key, expected in _SUPPORTED.items():
        if config.get(key, expected) != expected:
            raise DareError(f"config.json: {key}={config[key]!r} is not supported for LLaDA; expected {expected!r}")
    if config["n_kv_heads"] != config["n_heads"]:
        raise DareError(f"config.json: n_kv_heads={config['n_kv_heads']} differs from n_heads={config['n_heads']}")
    architecture = Architecture(
        hidden_size=config["d_model"],
        layers=config["n_layers"],
        heads=config["n_heads"],
        mlp_size=config["mlp_hidden_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        tied=config["weight_tying"],
    )
    spec = ModelSpec(
        family="llada",
        mask_id=config["mask_token_id"],
        eos_ids=(config["eos_token_id"],),
        pad_id=config["pad_token_id"],
        vocab_size=config["embedding_size"],
        context=config["max_sequence_length"],
    )
    return architecture, spec


def tensor_name(name: str) -> str:
    """``blocks.3.mlp.up.weight`` -> ``model.transformer.blocks.3.up_proj.weight``."""
    block, module = re.fullmatch(r"(blocks\.\d+\.)?(.+)\.weight", name).groups()  # type: ignore[union-attr]
    prefix = f"model.transformer.{block}" if block else ""
    return f"{prefix}{_NAMES[module]}.weight"
