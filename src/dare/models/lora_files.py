"""A saved adapter: the files of peft, which its own loader reads too."""

from copy import copy
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from dare.errors import DareError
from dare.models.lora import adapter_weights, has_adapter, inject, peft_library
from dare.models.transformer import Transformer

_CONFIG, _TENSORS = "adapter_config.json", "adapter_model.safetensors"


def save_adapter(folder: Path, model: Transformer) -> None:
    """Write peft's files: ``adapter_config.json`` and ``adapter_model.safetensors``."""
    config: Any = copy(model.peft_config["default"])  # type: ignore[index]
    # peft would write a set, whose order differs from process to process
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(folder)
    tensors = {name: weight.detach().contiguous() for name, weight in adapter_weights(model).items()}
    save_file(tensors, folder / _TENSORS, metadata={"format": "pt"})


def load_adapter(model: Transformer, folder: Path) -> Transformer:
    """Read a saved adapter into the one ``model`` carries, or into a new one.

    Raises ``DareError`` where the folder holds another kind of adapter or its tensors do not fit the model.
    """
    if not has_adapter(model):
        inject(model, _config(folder), seed=0)
    if not (folder / _TENSORS).is_file():
        raise DareError(f"{folder}: no {_TENSORS} there; an adapter is that file and {_CONFIG}")
    weights, tensors = adapter_weights(model), load_file(folder / _TENSORS)
    for name in sorted(weights.keys() ^ tensors.keys()):
        raise DareError(f"{folder / _TENSORS}: tensor {name!r} is missing or has no place in this model's adapter")
    for name, weight in weights.items():
        if weight.shape != tensors[name].shape:
            found, wanted = tuple(tensors[name].shape), tuple(weight.shape)
            raise DareError(f"{folder / _TENSORS}: tensor {name!r} has shape {found}; the model needs {wanted}")
        weight.data.copy_(tensors[name])
    return model


def is_adapter(folder: Path) -> bool:
    """Tell whether ``folder`` holds an adapter."""
    return (folder / _CONFIG).is_file()


def adapter_base(folder: Path) -> tuple[str, str | None]:
    """Return the ``base`` and ``revision`` a saved adapter was given."""
    config = _config(folder)
    if not config.base_model_name_or_path:
        raise DareError(f"{folder / _CONFIG}: base_model_name_or_path is empty; write the path of its base model there")
    return config.base_model_name_or_path, config.revision


def _config(folder: Path) -> Any:
    try:
        config = peft_library().PeftConfig.from_pretrained(str(folder))
    except (ValueError, KeyError, TypeError) as error:
        raise DareError(f"{folder / _CONFIG}: not an adapter's settings ({error}); write the file again") from error
    if not isinstance(config, peft_library().LoraConfig):
        raise DareError(f"{folder / _CONFIG}: peft_type {config.peft_type.value} is not supported; expected LORA")
    return config
