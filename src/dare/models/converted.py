"""Autoregressive checkpoints turned into diffusion models by ``dare convert``: Llama, Qwen2 and Qwen3 decoders."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from dare.errors import DareError, nearest
from dare.models import qwen
from dare.models.base import ModelSpec, require
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture

CONVERTED = "DareDiffusionLM"
"""The architecture name of a converted checkpoint."""

BASES: dict[str, dict[str, bool]] = {
    "LlamaForCausalLM": {},
    "Qwen2ForCausalLM": {"qkv_bias": True},
    "Qwen3ForCausalLM": {"qk_norm": True},
}
"""Architectures that can be converted, with what sets their decoders apart."""

Attention = Literal["full", "block_causal"]
Alignment = Literal["next", "same"]
_CHOICES = {"attention": get_args(Attention), "alignment": get_args(Alignment)}
_ROPE = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0}
_ROPE_THETA = 10_000.0  # what transformers assumes where a config states none


def base_architecture(config: Mapping[str, Any], source: str) -> str:
    """Return the autoregressive architecture of ``config``; ``source`` names the file in errors."""
    names = config.get("architectures") or ["(none)"]
    if names[0] not in BASES:
        raise DareError(f"{source}: architecture {names[0]!r} cannot be converted; {nearest(names[0], BASES)}")
    return names[0]


def parse(config: Mapping[str, Any], ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    """Read a converted ``config.json``: the base's own keys and the four that ``dare convert`` adds."""
    base = base_architecture({"architectures": [config["base_architecture"]]}, "config.json base_architecture")
    for key, choices in _CHOICES.items():
        if config[key] not in choices:
            raise DareError(f"config.json: {key}={config[key]!r} is unknown; expected {' or '.join(choices)}")
    block_size = config["block_size"]
    if (block_size is None) != (config["attention"] == "full"):
        raise DareError(f"config.json: block_size={block_size} with attention {config['attention']!r}; correct one")
    return decoder(config, base, config["alignment"]), qwen.spec(config, ids, "converted", block_size)


def decoder(config: Mapping[str, Any], base: str, alignment: Alignment) -> Architecture:
    """Read the decoder of architecture ``base``; a setting it does not compute is refused."""
    require(config, base, {"mlp_bias": False})
    rope = config.get("rope_parameters") or {}
    for key, value in rope.items():
        if key != "rope_theta" and _ROPE.get(key) != value:
            raise DareError(
                f"config.json: rope_parameters.{key}={value!r} is not supported for {base}, only default rotation"
            )
    if not {"full_attention"}.issuperset(config.get("layer_types") or []):
        raise DareError(f"config.json: layer_types={config['layer_types']} for {base}; expected 'full_attention' only")
    theta = rope.get("rope_theta") or config.get("rope_theta") or _ROPE_THETA
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    usual = {**config, "rope_theta": theta, "num_key_value_heads": heads}  # as older releases spell it
    return qwen.architecture(usual, base, **BASES[base], next_token=alignment == "next")
