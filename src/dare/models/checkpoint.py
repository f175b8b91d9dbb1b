"""Load and save models as Hugging Face folders: ``config.json`` and safetensors, never pickle, never remote code."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase

from dare.errors import DareError, nearest
from dare.models.family import family_of
from dare.models.tiny import TINY_MODELS, TINY_PREFIX, tiny_config
from dare.models.tokenizer import load_tokenizer, tiny_token_ids, tiny_tokenizer
from dare.models.transformer import Transformer


@dataclass(frozen=True)
class Checkpoint:
    """A model with the files that make it a complete folder. ``tokenizer`` is None where the folder has none."""

    model: Transformer
    config: dict[str, Any]
    tokenizer: PreTrainedTokenizerBase | None


def load_checkpoint(path: str, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Load a checkpoint folder, or initialise an embedded model named ``tiny:...`` from ``seed``."""
    if path.startswith(TINY_PREFIX):
        return _fresh_tiny(path, seed, dtype)
    folder = Path(path)
    config = _read_config(folder)
    model = build(config, str(folder))
    model = model.to_empty(device="cpu").to(dtype)
    read_weights(model, folder, config)
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return Checkpoint(model, config, load_tokenizer(folder) if has_tokenizer else None)


def build(config: dict[str, Any], source: str = "config.json") -> Transformer:
    """Construct the decoder of ``config`` on the meta device: shapes without memory."""
    try:
        architecture, spec = family_of(config, source).parse(config)
    except KeyError as error:
        raise DareError(f"{source}: key {error} is missing from the model's config.json") from error
    with torch.device("meta"):
        return Transformer(architecture, spec)


def read_weights(model: Transformer, folder: Path, config: dict[str, Any]) -> None:
    """Copy a folder's tensors into ``model``, one at a time; a missing or misshapen tensor is an error."""
    name_of = family_of(config, str(folder)).tensor_name
    where = _tensor_files(folder)
    extra = sorted(set(where) - {name_of(name) for name, _ in model.named_parameters()})
    if extra:
        raise DareError(f"{folder}: tensor {extra[0]!r} ({len(extra)} in all) has no place in this family's decoder")
    for name, weight in model.named_parameters():
        key = name_of(name)
        if key not in where:
            raise DareError(f"{folder}: tensor {key!r} is missing; {nearest(key, where)}")
        with safe_open(where[key], framework="pt") as file:
            tensor = file.get_tensor(key)
        if tensor.shape != weight.shape:
            found, wanted = tuple(tensor.shape), tuple(weight.shape)
            raise DareError(f"{folder}: tensor {key!r} has shape {found}, config.json asks for {wanted}")
        weight.data.copy_(tensor)


def save_model(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a complete folder under the family's own tensor names."""
    folder.mkdir(parents=True, exist_ok=True)
    name_of = family_of(checkpoint.config, str(folder)).tensor_name
    tensors = {name_of(name): weight.detach().contiguous() for name, weight in checkpoint.model.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(checkpoint.config, indent=2) + "\n")
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)


def _fresh_tiny(name: str, seed: int, dtype: torch.dtype) -> Checkpoint:
    if name not in TINY_MODELS:
        raise DareError(f"model {name!r} is not an embedded model; {nearest(name, TINY_MODELS)}")
    config = tiny_config(name, tiny_token_ids())
    model = build(config).to_empty(device="cpu").to(dtype)
    generator = torch.Generator().manual_seed(seed)
    for parameter, weight in model.named_parameters():
        if "norm" in parameter:
            torch.nn.init.ones_(weight)
        else:
            torch.nn.init.normal_(weight, std=config["init_std"], generator=generator)
    return Checkpoint(model, config, tiny_tokenizer())


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        names = ", ".join(TINY_MODELS)
        raise DareError(f"model {str(folder)!r}: no config.json there; give a checkpoint folder or one of {names}")
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise DareError(f"{file}: not valid JSON ({error}); download the file again") from error


def _tensor_files(folder: Path) -> dict[str, Path]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise DareError(
            f"{folder}: no model*.safetensors file there; DARE reads no pickled weights, convert them first"
        )
    where = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            where.update(dict.fromkeys(file.keys(), path))
    return where
