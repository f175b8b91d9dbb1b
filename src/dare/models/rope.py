"""Rotary positions."""

import torch
from torch import Tensor

Rope = tuple[Tensor, Tensor]
"""Cosines and sines ``[..., 1, size]`` of each position, the same for all heads."""


def rope_tables(position: Tensor, size: int, theta: float, dtype: torch.dtype) -> Rope:
    """Tables of rotary positions ``[...]`` (arXiv 2104.09864) for ``size`` features of a head, in float32 or wider."""
    wide = torch.promote_types(dtype, torch.float32)
    exponent = torch.arange(0, size, 2, device=position.device, dtype=wide) / size
    angle = position.to(wide)[..., None, None] / theta**exponent
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotate the two halves of the leading features of each head, ``[..., heads, E]`` (the GPT-NeoX pairing), in the
    tables' precision.
    """
    cos, sin = rope
    size = cos.shape[-1]
    turning, still = x[..., :size].to(cos.dtype), x[..., size:]
    first, second = turning.chunk(2, dim=-1)
    turned = (turning * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)
    return torch.cat([turned, still], -1) if still.shape[-1] else turned
