"""Keys and values that a decoder need not compute again: one static store, written in place."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class KVCache:
    """Rotated keys and values of every layer, ``[rows, kv_heads, width, head_size]`` each.

    Its size is fixed at construction. Rows in use are the first ones, so that reading all of them is a view.
    """

    def __init__(self, layers: int, shape: tuple[int, int, int, int], like: Tensor):
        self.keys = [like.new_zeros(shape) for _ in range(layers)]
        self.values = [like.new_zeros(shape) for _ in range(layers)]

    @property
    def width(self) -> int:
        """Positions a row has room for."""
        return self.keys[0].shape[2]

    def copy(self, source_N: Tensor, target_N: Tensor) -> None:
        """Let rows ``target_N`` hold what rows ``source_N`` hold."""
        for store in (*self.keys, *self.values):
            store[target_N] = store[source_N]


@dataclass(frozen=True)
class Window:
    """The part of each row that a forward pass computes, while all else is read from the cache.

    ``position_NW`` the canvas positions of the given ids; ``row_N`` the cache rows they belong to (None: the first N);
    ``end`` positions of the cache that any query may see.
    """

    cache: KVCache
    position_NW: Tensor
    end: int
    row_N: Tensor | None = None

    def layer(self, number: int) -> "LayerWindow":
        """The window as one layer sees it."""
        return LayerWindow(self, self.cache.keys[number], self.cache.values[number])


class LayerWindow(NamedTuple):
    """One layer's keys and values under a window."""

    window: Window
    keys: Tensor
    values: Tensor

    def exchange(self, key_NHWE: Tensor, value_NHWE: Tensor) -> tuple[Tensor, Tensor]:
        """Write the window's keys and values, return those of the whole rows: ``[N, kv_heads, end, head_size]``."""
        window, count = self.window, len(key_NHWE)
        row_N = torch.arange(count, device=key_NHWE.device) if window.row_N is None else window.row_N
        for store, new in ((self.keys, key_NHWE), (self.values, value_NHWE)):
            store[row_N[:, None], :, window.position_NW] = new.transpose(1, 2)
        rows = slice(0, count) if window.row_N is None else row_N
        return self.keys[rows, :, : window.end], self.values[rows, :, : window.end]
