"""How our parameters lie in a checkpoint's tensors.

A parameter, flattened to rows, is the concatenation of pieces; a piece is a run of rows of one checkpoint tensor. One
tensor per parameter is the common case; stacked experts are many tensors to one parameter, a fused query-key-value is
one tensor to three.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dare.models.transformer import Architecture


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of checkpoint tensor ``tensor`` (``stop`` None: to the end)."""

    tensor: str
    start: int = 0
    stop: int | None = None


LLAMA = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "unembed": "lm_head",
    "blocks": "model.layers",
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "mlp.router": "mlp.gate",
}


def translate(name: str, table: Mapping[str, str]) -> str:
    """``blocks.3.mlp.up.weight`` -> ``model.layers.3.mlp.up_proj.weight`` under ``LLAMA``."""
    module, _, kind = name.rpartition(".")
    if not module.startswith("blocks."):
        return f"{table[module]}.{kind}"
    _, layer, inner = module.split(".", 2)
    return f"{table['blocks']}.{layer}.{table[inner]}.{kind}"


def llama_pieces(name: str, arch: Architecture, table: Mapping[str, str] = LLAMA) -> list[Piece]:
    """Names of the Llama lineage: one tensor per parameter, one per expert in a sparse layer."""
    module, _, kind = name.rpartition(".")
    if arch.experts and kind in ("gate", "up", "down"):
        layer = module.split(".")[1]
        prefix = f"{table['blocks']}.{layer}.mlp.experts"
        return [Piece(f"{prefix}.{number}.{kind}_proj.weight") for number in range(arch.experts.count)]
    return [Piece(translate(name, table))]
