"""The embedded small models: a masked and a block-causal decoder of about 1 M parameters with a byte tokenizer.

Every training verb accepts their names in place of a checkpoint folder, so all of DARE runs on a laptop.
"""

from collections.abc import Mapping
from typing import Any

from dare.models.base import ModelSpec
from dare.models.names import Piece
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

TINY_PREFIX = "tiny:"
_SIZES = {
    "hidden_size": 128,
    "layers": 5,
    "heads": 4,
    "mlp_size": 384,
    "rope_theta": 10_000.0,
    "context": 4096,
    "init_std": 0.06,
}
_ATTENTION: dict[str, dict[str, Any]] = {
    "tiny:masked": {"attention": "full", "block_size": None},
    "tiny:block": {"attention": "block_causal", "block_size": 8},
}
TINY_MODELS = tuple(_ATTENTION)


def tiny_config(name: str, token_ids: Mapping[str, int]) -> dict[str, Any]:
    """Return the ``config.json`` of embedded model ``name``; ``token_ids``: mask, eos, pad, vocab_size."""
    return {
        "architectures": ["DareTiny"],
        "model_type": "dare_tiny",
        "mask_token_id": token_ids["mask"],
        "eos_token_id": token_ids["eos"],
        "pad_token_id": token_ids["pad"],
        "vocab_size": token_ids["vocab_size"],
        **_SIZES,
        **_ATTENTION[name],
    }


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read the ``config.json`` written by ``tiny_config``."""
    head_size = config["hidden_size"] // config["heads"]
    architecture = Architecture(
        hidden_size=config["hidden_size"],
        layers=config["layers"],
        heads=config["heads"],
        kv_heads=config["heads"],
        head_size=head_size,
        rotary_size=head_size,
        mlp_size=config["mlp_size"],
        rope_theta=config["rope_theta"],
    )
    spec = ModelSpec(
        family="tiny",
        mask_id=ids.mask_id,
        eos_ids=ids.eos_ids,
        pad_id=ids.pad_id,
        vocab_size=config["vocab_size"],
        context=config["context"],
        attention=config["attention"],
        block_size=config["block_size"],
    )
    return architecture, spec


def pieces(name: str, arch: Architecture) -> list[Piece]:
    """The embedded models keep the decoder's own parameter names."""
    return [Piece(name)]
