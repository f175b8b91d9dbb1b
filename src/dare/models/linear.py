"""A linear projection whose float32 products on a CPU run in oneDNN."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_SMALLEST = 2**16
"""Numbers in a weight below which a call costs more than the faster product saves."""

_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """``nn.Linear``, a fifth faster where the weight is large, in float32 and on a CPU: ``nn.Linear`` calls BLAS there,
    whose products are the slower ones on an AMD processor. Results are equal but for rounding.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Project the last dimension of ``x``."""
        if in_onednn(self.weight) and x.dtype == torch.float32:
            return _Product.apply(x, self.weight, self.bias)
        return super().forward(x)


def in_onednn(weight: Tensor) -> bool:
    """Tell whether products with ``weight`` are faster in oneDNN."""
    plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return _ONEDNN and plain and weight.numel() >= _SMALLEST


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x weight^T + bias`` by oneDNN; no gradient. ``weight`` may be in oneDNN's own layout."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@torch.library.custom_op("dare::product", mutates_args=())
def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``product`` as torch.compile takes it: a call it does not look into."""
    return product(x, weight, bias)


@_product.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], len(weight)))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_OI)
        return _product(x, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight_OI = ctx.saved_tensors
        wanted, grad_NO = ctx.needs_input_grad, grad.flatten(0, -2)
        return (
            _product(grad, weight_OI.T, None) if wanted[0] else None,
            # both factors change at each call, for which BLAS is the faster one
            grad_NO.T @ x.flatten(0, -2) if wanted[1] else None,
            grad_NO.sum(0) if wanted[2] else None,
        )
