"""Counter-based uniforms: every draw is a pure function of its key and its position.

A draw does not depend on the batch it sits in, the process that makes it or what was drawn before, so one and
eight processes see the same corruption and a resumed run continues bit for bit.

The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), written in wrapping int64.
"""

import zlib

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch shifts int64 arithmetically, so the sign copies are cleared."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def mix(x: Tensor) -> Tensor:
    """Scramble int64 counters one to one (any shape)."""
    x = x * 1 + _GAMMA
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def key(*parts: int | str | Tensor) -> Tensor:
    """Fold integers, names and int64 tensors (broadcast together) into one noise key of their common shape."""
    state = torch.zeros((), dtype=torch.int64)
    for part in parts:
        if isinstance(part, str):
            part = zlib.crc32(part.encode())
        value = part if isinstance(part, Tensor) else torch.tensor(_signed(part), dtype=torch.int64)
        state = mix(state.to(value.device) ^ mix(value))
    return state


def uniform(key_B: Tensor, *shape: int) -> Tensor:
    """Float64 uniforms in [0, 1), ``[B, *shape]``; entry ``[b, i, ...]`` depends on ``key_B[b]`` and its index only.

    A longer last dimension leaves the earlier entries unchanged (leading dimensions are folded one at a time), so
    padding a batch changes no draw.
    """
    state = key_B
    for size in shape:
        state = mix(state[..., None] ^ mix(torch.arange(size, device=key_B.device)))
    return _shift(state, 11).to(torch.float64) * 2.0**-53


def ranks(noise_BT: Tensor, among_BT: Tensor) -> Tensor:
    """Place of each of the positions ``among_BT`` in a random order of them, from 0 along the last dimension."""
    return noise_BT.masked_fill(~among_BT, torch.inf).argsort(-1).argsort(-1)


def uniform_at(key_M: Tensor, index_M: Tensor) -> Tensor:
    """Entry ``index_M`` of ``uniform(key_M, ...)``, for each pair: draw only what is used."""
    return _shift(mix(key_M ^ mix(index_M)), 11).to(torch.float64) * 2.0**-53
