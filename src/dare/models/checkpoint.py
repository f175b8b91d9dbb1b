"""Load and save models as Hugging Face folders: ``config.json`` and safetensors, never pickle, never remote code."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from dare.errors import DareError, nearest
from dare.models.family import family_of
from dare.models.tiny import TINY_MODELS, TINY_PREFIX, tiny_config
from dare.models.tokenizer import load_tokenizer, tiny_token_ids, tiny_tokenizer
from dare.models.tokens import special_ids
from dare.models.transformer import Transformer
from dare.models.weights import load_weights, save_weights


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
        return _fresh_tiny(path, seed, dtype)
    folder = Path(path)
    config = _read_json(folder / "config.json")
    model = build(config, folder).to_empty(device=device).to(dtype)
    load_weights(model, folder, family_of(config, str(folder)))
    generation = folder / "generation_config.json"
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return Checkpoint(
        model=model,
        config=config,
        tokenizer=load_tokenizer(folder) if has_tokenizer else None,
        generation_config=_read_json(generation) if generation.is_file() else {},
    )


def build(config: dict[str, Any], folder: Path) -> Transformer:
    """Construct the decoder of ``config`` on the meta device: shapes without memory."""
    family = family_of(config, str(folder))
    try:
        architecture, spec = family.parse(config, special_ids(folder, config, family.mask_names))
    except KeyError as error:
        raise DareError(f"{folder / 'config.json'}: key {error} is missing; this family needs it") from error
    with torch.device("meta"):
        return Transformer(architecture, spec)


def read_weights(model: Transformer, folder: Path, config: dict[str, Any]) -> None:
    """Copy a folder's tensors into ``model``."""
    load_weights(model, folder, family_of(config, str(folder)))


def save_model(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a complete folder under the family's own tensor names."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(checkpoint.model, folder, family_of(checkpoint.config, str(folder)))
    (folder / "config.json").write_text(json.dumps(checkpoint.config, indent=2) + "\n")
    if checkpoint.generation_config:
        (folder / "generation_config.json").write_text(json.dumps(checkpoint.generation_config, indent=2) + "\n")
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)


def _fresh_tiny(name: str, seed: int, dtype: torch.dtype) -> Checkpoint:
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
    # drawn in float32 whatever the dtype, so that a seed names one model
    return Checkpoint(model.to(dtype), config, tiny_tokenizer())


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        names = ", ".join(TINY_MODELS)
        raise DareError(f"model {str(file.parent)!r}: no {file.name} there; give a checkpoint folder or one of {names}")
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise DareError(f"{file}: not valid JSON ({error}); download the file again") from error
