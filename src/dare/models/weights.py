"""Move tensors between a model and safetensors files, a shard at a time and without a second copy of the weights."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dare.errors import DareError, nearest
from dare.models.family import Family
from dare.models.transformer import Transformer

SHARD_BYTES = 5 * 10**9
_MAPPED_BYTES = 64 * 10**6
"""Pages of a mapped file stay resident until it is closed, so it is reopened after this much."""


@dataclass(frozen=True)
class _Target:
    """Rows ``start`` to ``start + len(rows)`` of a checkpoint tensor belong in ``rows``, a view of a parameter."""

    rows: Tensor
    start: int


def load_weights(model: Transformer, folder: Path, family: Family) -> None:
    """Fill ``model``; a missing, unknown or misshapen tensor or a broken file raises ``DareError``."""
    targets = tensor_targets(model, family)
    where = _tensor_files(folder)
    for name in targets.keys() - where.keys():
        raise DareError(f"{folder}: tensor {name!r} is missing; {nearest(name, where)}")
    for name in sorted(where.keys() - targets.keys()):
        raise DareError(f"{where[name]}: tensor {name!r} has no place in this family's decoder")
    for path in sorted(set(where.values())):
        for name, tensor in _read(path, [name for name in targets if where[name] == path]):
            _fill(targets[name], name, tensor, path)


def save_weights(model: Transformer, folder: Path, family: Family, shard_bytes: int = SHARD_BYTES) -> None:
    """Write ``model.safetensors``, or numbered shards with their index where it would exceed ``shard_bytes``."""
    targets = tensor_targets(model, family)
    shards: list[list[str]] = [[]]
    filled = total = 0
    for name, parts in targets.items():
        size = sum(part.rows.nbytes for part in parts)
        if filled and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled, total = filled + size, total + size
    count, where = len(shards), {}
    for number, names in enumerate(shards, start=1):
        file = "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"
        save_file({name: _join(targets[name]) for name in names}, folder / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(names, file))
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def tensor_targets(model: Transformer, family: Family) -> dict[str, list[_Target]]:
    """Where the rows of each checkpoint tensor go."""
    targets: dict[str, list[_Target]] = {}
    for name, weight in model.state_dict().items():
        rows = weight.flatten(0, -2) if weight.dim() > 1 else weight
        pieces = family.pieces(name, model.arch)
        for piece, part in zip(pieces, rows.chunk(len(pieces)), strict=True):
            targets.setdefault(piece.tensor, []).append(_Target(part, piece.start))
    return {name: sorted(parts, key=lambda part: part.start) for name, parts in targets.items()}


def _join(parts: list[_Target]) -> Tensor:
    whole = torch.cat([part.rows for part in parts]) if len(parts) > 1 else parts[0].rows
    # experts share one storage, which the format does not allow
    return whole.clone() if whole.untyped_storage().nbytes() != whole.nbytes else whole.contiguous()


def _fill(parts: list[_Target], name: str, tensor: Tensor, path: Path) -> None:
    expected = (sum(len(part.rows) for part in parts), *parts[0].rows.shape[1:])
    if tuple(tensor.shape) != expected:
        raise DareError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, config.json asks for {expected}")
    for part in parts:
        part.rows.copy_(tensor[part.start : part.start + len(part.rows)])


def _read(path: Path, names: list[str]) -> Iterator[tuple[str, Tensor]]:
    position = 0
    while position < len(names):
        read = 0
        with safe_open(path, framework="pt") as file:
            while position < len(names) and read < _MAPPED_BYTES:
                tensor = file.get_tensor(names[position])
                yield names[position], tensor
                read += tensor.nbytes
                position += 1


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file of every tensor, from the files themselves; an index must agree with them."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise DareError(
            f"{folder}: no model*.safetensors file there; DARE reads no pickled weights, convert them first"
        )
    where = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                where.update(dict.fromkeys(file.keys(), path))
        except SafetensorError as error:
            raise DareError(f"{path}: broken or truncated ({error}); download it again") from error
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        for name, shard in json.loads(index.read_text())["weight_map"].items():
            if not (folder / shard).is_file():
                raise DareError(f"{folder / shard} is missing, which holds tensor {name!r}; download it again")
    return where
