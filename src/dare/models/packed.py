"""Weights laid out for decoding on a CPU, where few rows at a time make a plain product wait for memory."""

import copy
import os
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from dare.models.linear import Linear, in_onednn, product
from dare.models.transformer import Transformer

_SHARE = 0.25
"""Part of the machine's memory that the copies may take."""


class PackedLinear(nn.Module):
    """A linear projection over a copy of its weight in oneDNN's layout, made anew when the weight has changed.

    Float32 on a CPU; it has no gradient. A row's result does not depend on the rows beside it, but for rounding.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.weight, self.bias = weight, bias
        self._pack()

    def forward(self, x: Tensor) -> Tensor:
        """Project the last dimension of ``x``."""
        if self.packed_from != _version(self.weight):
            self._pack()
        return product(x, self.packed, self.bias)

    def _pack(self) -> None:
        self.packed_from = _version(self.weight)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)


_PACKED: WeakValueDictionary[int, PackedLinear] = WeakValueDictionary()
"""The copies in use, by the identity of their weight: decoders of one model share them."""


def packed(model: Any) -> Any:
    """Return ``model`` for decoding: the same weights, its large float32 projections packed where that is faster.

    The model itself stays as it is. The copies take as much memory as the weights they stand for, until the last result
    of this function is dropped; a model larger than a quarter of the machine's memory is returned unpacked, as is any
    other than a float32 module on a CPU with oneDNN. An optimiser's step is seen at the next pass, a write through
    ``weight.data`` is not.
    """
    if not isinstance(model, nn.Module) or not _room_for(model):
        return model
    twin = _twin(model)
    if isinstance(twin, Transformer) and twin.arch.tied and _fits(twin.embed.weight):
        twin.arch = replace(twin.arch, tied=False)
        twin.add_module("unembed", _linear(twin.embed.weight, None))
    return twin


def _room_for(model: nn.Module) -> bool:
    room = _SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sum(weight.nbytes for weight in model.parameters()) <= room


def _twin(module: nn.Module) -> nn.Module:
    """The same module with packed projections inside; everything else is shared."""
    if isinstance(module, Linear) and _fits(module.weight):
        return _linear(module.weight, module.bias)
    twin = copy.copy(module)
    twin._modules = {name: child and _twin(child) for name, child in module._modules.items()}
    return twin


def _fits(weight: Tensor) -> bool:
    # an inference tensor counts no versions: a copy of it could go stale unseen
    return in_onednn(weight) and not weight.is_inference()


def _linear(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    found = _PACKED.get(id(weight))
    if found is None:
        found = _PACKED[id(weight)] = PackedLinear(weight, bias)
    return found


def _version(weight: Tensor) -> tuple[int, int]:
    return weight._version, weight.data_ptr()
