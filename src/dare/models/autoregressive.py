"""Read an autoregressive checkpoint, a Hugging Face folder or a GGUF file, through ``transformers``."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging

from dare.errors import DareError
from dare.models.converted import base_architecture, decoder
from dare.models.tokenizer import load_tokenizer
from dare.models.tokens import read_json

_STALE = ("_name_or_path", "_model_name_or_path", "quantization_config", "torch_dtype", "transformers_version")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class Autoregressive:
    """``config`` names its architecture; ``tensors`` are named as ``transformers`` names them."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: PreTrainedTokenizerBase
    generation_config: dict[str, Any]


def read_autoregressive(source: Path) -> Autoregressive:
    """Load ``source``; a folder keeps its precision, the quantised weights of a GGUF file become float32.

    Raises ``DareError`` where files are missing or broken, tensors are missing, or the architecture is another one.
    """
    if source.suffix == ".gguf":
        return _read_gguf(source)
    if not (source / "config.json").is_file():
        raise DareError(f"model {str(source)!r}: no config.json there; give a Hugging Face folder or a .gguf file")
    config = read_json(source / "config.json")
    base = base_architecture(config, str(source / "config.json"))
    try:
        decoder(config, base, "next")  # refuses before anything is loaded
    except KeyError as error:
        raise DareError(f"{source / 'config.json'}: key {error} is missing; download the file again") from error
    model = _load(source, source, dtype="auto")
    config |= {"dtype": str(model.dtype).removeprefix("torch.")}
    generation = read_json(source / "generation_config.json")
    return Autoregressive(_clean(config), model.state_dict(), load_tokenizer(source), generation)


def _read_gguf(file: Path) -> Autoregressive:
    if not file.is_file():
        raise DareError(f"model {str(file)!r}: no such file; give a .gguf file or a Hugging Face folder")
    if importlib.util.find_spec("gguf") is None:
        raise DareError(f"model {str(file)!r}: reading it needs the package gguf; run: pip install 'gguf>=0.10'")
    model = _load(file, file.parent, gguf_file=file.name, dtype=torch.float32)
    with _quiet(file):
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, **_LOCAL)
    config = {**model.config.to_dict(), "architectures": [type(model).__name__], "dtype": "float32"}
    base_architecture(config, str(file))
    return Autoregressive(_clean(config), model.state_dict(), tokenizer, {})


def _load(source: Path, folder: Path, **options: Any) -> Any:
    with _quiet(source):
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **_LOCAL, **options)
    for name in sorted(info["missing_keys"]):  # transformers would leave them at random values
        raise DareError(f"{source}: tensor {name!r} is missing; download the checkpoint again")
    return model


def _clean(config: dict[str, Any]) -> dict[str, Any]:
    """Leave out what describes the file that was read, not the model."""
    return {key: value for key, value in config.items() if key not in _STALE}


@contextmanager
def _quiet(source: Path) -> Iterator[None]:
    """Hold back progress bars and warnings; an error becomes one line."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DareError(f"{source}: transformers cannot load it ({reason}); check or download its files") from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
