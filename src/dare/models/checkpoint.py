"""Load and save models as Hugging Face folders: ``config.json`` and safetensors, never pickle, never remote code."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from dare.errors import DareError, nearest
from dare.models.base import ModelSpec
from dare.models.family import family_of
from dare.models.tiny import TINY_MODELS, TINY_PREFIX, tiny_config
from dare.models.tokenizer import load_tokenizer, tiny_token_ids, tiny_tokenizer
from dare.models.tokens import SpecialIds, read_json, special_ids
from dare.models.transformer import Architecture, Transformer
from dare.models.weights import load_weights, save_weights

UNKNOWN_IDS = SpecialIds(mask_id=0, eos_ids=(0,), eot_id=None, pad_id=0)
"""For what does not depend on which tokens are special: shapes, family, attention."""


@dataclass(frozen=True)
class Checkpoint:
    """A model with what makes it a complete folder. ``tokenizer`` is None where the folder has none."""

    model: Transformer
    config: dict[str, Any]
    tokenizer: PreTrainedTokenizerBase | None
    generation_config: dict[str, Any] = field(default_factory=dict)


def load_checkpoint(
    path: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Checkpoint:
    """Load a checkpoint folder, or initialise an embedded model named ``tiny:...`` from ``seed``."""
    if path.startswith(TINY_PREFIX):
        return _fresh_tiny(path, seed, dtype, device)
    folder = Path(path)
    if not (folder / "config.json").is_file():
        names = ", ".join(TINY_MODELS)
        raise DareError(f"model {path!r}: no config.json there; give a checkpoint folder or one of {names}")
    config = read_json(folder / "config.json")
    # the type is set while the weights have no storage, so none is spent on another type
    model = build(config, folder).to(dtype).to_empty(device=device)
    load_weights(model, folder, family_of(config, str(folder)))
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return Checkpoint(
        model=model,
        config=config,
        tokenizer=load_tokenizer(folder) if has_tokenizer else None,
        generation_config=read_json(folder / "generation_config.json"),
    )


def kind_of(path: str) -> tuple[str, str] | None:
    """Return family and attention of a folder or embedded model from its settings alone; None where none are there.

    An adapter is of the kind of its base model.
    """
    if path in TINY_MODELS:
        return "tiny", tiny_config(path, tiny_token_ids())["attention"]
    folder = Path(path)
    if config := read_json(folder / "config.json"):
        spec = _parse(config, folder, UNKNOWN_IDS)[1]
        return spec.family, spec.attention
    base = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
    return kind_of(base) if base else None


def has_weights(folder: Path) -> bool:
    """Tell whether any weights are in ``folder``."""
    return any(folder.glob("model*.safetensors"))


def build(config: dict[str, Any], folder: Path, ids: SpecialIds | None = None) -> Transformer:
    """Construct the decoder of ``config`` on the meta device: shapes without memory.

    ``ids`` None: those the folder's files state.
    """
    ids = ids or special_ids(folder, config, family_of(config, str(folder)).mask_names)
    with torch.device("meta"):
        return Transformer(*_parse(config, folder, ids))


def read_weights(model: Transformer, folder: Path, config: dict[str, Any]) -> None:
    """Copy a folder's tensors into ``model``."""
    load_weights(model, folder, family_of(config, str(folder)))


def save_model(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a complete folder under the family's own tensor names."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(checkpoint.model, folder, family_of(checkpoint.config, str(folder)))
    save_description(folder, checkpoint)
    if checkpoint.generation_config:
        _write_json(folder / "generation_config.json", checkpoint.generation_config)


def save_description(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``config.json`` and the tokenizer: what a folder needs besides weights to tell what it is."""
    _write_json(folder / "config.json", checkpoint.config)
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)


def _parse(config: dict[str, Any], folder: Path, ids: SpecialIds) -> tuple[Architecture, ModelSpec]:
    try:
        return family_of(config, str(folder)).parse(config, ids)
    except KeyError as error:
        raise DareError(f"{folder / 'config.json'}: key {error} is missing; this family needs it") from error


def _fresh_tiny(name: str, seed: int, dtype: torch.dtype, device: torch.device | str) -> Checkpoint:
    if name not in TINY_MODELS:
        raise DareError(f"model {name!r} is not an embedded model; {nearest(name, TINY_MODELS)}")
    config = tiny_config(name, tiny_token_ids())
    model = build(config, Path(name)).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for parameter, weight in model.named_parameters():
        if "norm" in parameter:
            torch.nn.init.ones_(weight)
        else:
            torch.nn.init.normal_(weight, std=config["init_std"], generator=generator)
    # drawn on the CPU in float32 whatever is asked for, so that a seed names one model
    return Checkpoint(model.to(device, dtype), config, tiny_tokenizer())


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
