"""One tiny checkpoint of every family, in its published layout."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dare.models.checkpoint import Checkpoint, load_checkpoint

FULL = ["llada", "dream"]
BLOCK = ["sdar", "sdar_moe", "llada20", "llada21"]
FAMILIES = [*FULL, "llada_moe", *BLOCK]

MASK, EOS, LAYERS, EXPERTS = 45, 46, 2, 6
CONFIG = {
    "architectures": ["LLaDAMoEModelLM"],
    "attention_bias": False,
    "clip_qkv": None,
    "dense_intermediate_size": 80,
    "eos_token_id": EOS,
    "expert_intermediate_size": 12,
    "hidden_act": "silu",
    "hidden_size": 32,
    "max_position_embeddings": 128,
    "model_type": "llada",
    "moe_layer_freq": [1] * LAYERS,
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "norm_topk_prob": None,
    "num_attention_heads": 4,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 3,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 2,
    "pad_token_id": EOS,
    "partial_rotary_factor": 1.0,
    "qk_layernorm": True,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 50000,
    "shared_expert_intermediate_size": None,
    "tie_word_embeddings": False,
    "vocab_size": 48,
}
ATTENTION = {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32), "o_proj": (32, 32), "q_norm": (8,)}
EXPERT = {"gate_proj": (12, 32), "up_proj": (12, 32), "down_proj": (32, 12)}


def load(shared: Path, name: str, tmp_path: Path) -> Checkpoint:
    """A family's checkpoint; LLaDA-MoE has no golden folder and gets random weights."""
    return small_llada_moe(tmp_path) if name == "llada_moe" else load_golden(shared, name, tmp_path)[0]


def load_golden(shared: Path, name: str, tmp_path: Path) -> tuple[Checkpoint, dict[str, Tensor]]:
    """The checkpoint, its mask id added where the folder names none, and the reference tensors."""
    folder = shared / "golden" / name
    copied = tmp_path / name
    shutil.copytree(folder, copied)
    config = json.loads((copied / "config.json").read_text())
    if "mask_token_id" not in config:
        config["mask_token_id"] = json.loads((folder / "generate.json").read_text())["mask_token_id"]
        config.setdefault("eos_token_id", config.get("pad_token_id"))
        (copied / "config.json").chmod(0o644)
        (copied / "config.json").write_text(json.dumps(config))
    return load_checkpoint(str(copied)), load_file(folder / "forward.safetensors")


def llada_moe_shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of a published checkpoint, at the sizes of ``CONFIG``."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens": (48, 32), "model.norm": (32,), "lm_head": (48, 32)}
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        found |= {f"{layer}.input_layernorm": (32,), f"{layer}.post_attention_layernorm": (32,)}
        found |= {f"{layer}.self_attn.{part}": shape for part, shape in {**ATTENTION, "k_norm": (8,)}.items()}
        found[f"{layer}.mlp.gate"] = (EXPERTS, 32)
        for expert in range(EXPERTS):
            found |= {f"{layer}.mlp.experts.{expert}.{part}": shape for part, shape in EXPERT.items()}
    return {f"{name}.weight": shape for name, shape in found.items()}


def write_llada_moe(folder: Path, **changes: object) -> str:
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    save_file(
        {name: torch.randn(shape) * 0.3 for name, shape in llada_moe_shapes().items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    (folder / "added_tokens.json").write_text(json.dumps({"<|mask|>": MASK}))
    return str(folder)


def small_llada_moe(folder: Path) -> Checkpoint:
    return load_checkpoint(write_llada_moe(folder / "published"))
