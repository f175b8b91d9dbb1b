"""Frozen weights in 4 bits (NF4, arXiv 2305.14314) through bitsandbytes."""

from typing import Any

import torch
from torch import nn

from dare.errors import DareError
from dare.models.linear import Linear
from dare.models.transformer import Transformer


def quantize(model: Transformer) -> Transformer:
    """Replace the linear projections of the blocks in place; the weights shrink when the model moves to a GPU.

    Raises ``DareError`` where no GPU or no bitsandbytes is available.
    """
    library = _bitsandbytes()
    linears = {name: module for name, module in model.blocks.named_modules() if isinstance(module, Linear)}
    for name, linear in linears.items():
        model.blocks.set_submodule(name, _four_bit(linear, library))
    model.is_loaded_in_4bit = True  # type: ignore[assignment]  # peft asks for it
    return model


def _four_bit(linear: Linear, library: Any) -> nn.Module:
    size, biased = (linear.in_features, linear.out_features), linear.bias is not None
    new = library.nn.Linear4bit(*size, bias=biased, compute_dtype=linear.weight.dtype, quant_type="nf4", device="meta")
    new.weight = library.nn.Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4")
    new.bias = linear.bias
    return new


def _bitsandbytes() -> Any:
    if not torch.cuda.is_available():
        raise DareError("model.lora.four_bit=true needs an NVIDIA GPU, which torch does not see; set it to false")
    try:
        import bitsandbytes
    except ImportError as error:
        raise DareError("model.lora.four_bit=true needs bitsandbytes; install it: pip install bitsandbytes") from error
    return bitsandbytes
