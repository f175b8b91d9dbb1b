"""The files of a saved engine: model or adapter, and optimiser state as safetensors and JSON: no pickle."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from dare.engines.optimizer import set_rate
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint, read_weights, save_description, save_model
from dare.models.lora import has_adapter
from dare.models.lora_files import load_adapter, save_adapter

_TENSORS, _COUNTERS = "optimizer.safetensors", "engine.json"


def save_policy(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the model as a complete folder; of a model with an adapter only what the base model lacks."""
    if has_adapter(checkpoint.model):
        save_description(folder, checkpoint)
        save_adapter(folder, checkpoint.model)
    else:
        save_model(folder, checkpoint)


def load_policy(folder: Path, checkpoint: Checkpoint) -> None:
    """Read what ``save_policy`` wrote into the model."""
    if has_adapter(checkpoint.model):
        load_adapter(checkpoint.model, folder)
    else:
        read_weights(checkpoint.model, folder, checkpoint.config)


def save_optimizer(folder: Path, optimizer: torch.optim.Optimizer, counters: dict[str, int]) -> None:
    """Write every state tensor under ``PARAMETER_INDEX.NAME`` and the engine's counters."""
    state = optimizer.state_dict()["state"]
    tensors = {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}
    save_file(_plain(tensors), folder / _TENSORS)
    (folder / _COUNTERS).write_text(json.dumps(counters))


def load_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Restore the state tensors into ``optimizer`` and return the counters."""
    if not (folder / _TENSORS).is_file():
        raise DareError(f"{folder}: no {_TENSORS} there; only a checkpoint written by a training run can be resumed")
    kept = load_file(folder / _TENSORS)
    if any(key.count(".") > 1 for key in kept):
        _fill(optimizer, kept)
    else:
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in kept.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return json.loads((folder / _COUNTERS).read_text())


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Take tensors that are made of several apart: ``NAME.PART``."""
    plain: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        parts = value.__tensor_flatten__()[0] if hasattr(value, "__tensor_flatten__") else None
        plain |= {name: value} if parts is None else {f"{name}.{part}": getattr(value, part) for part in parts}
    return plain


def _fill(optimizer: torch.optim.Optimizer, kept: dict[str, torch.Tensor]) -> None:
    """Copy parts into the tensors they belong to, which a step that changes nothing creates."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    set_rate(optimizer, 0.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    state = {f"{i}.{name}": v for i, weight in enumerate(weights) for name, v in optimizer.state[weight].items()}
    for name, value in _plain(state).items():
        value.copy_(kept[name])
