"""How the model reads the canvas: everything again at each step, or only what may have changed."""

from typing import Protocol

import torch
from torch import Tensor

from dare.decoding.canvas import Canvas
from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.models.base import CachingLM, DiffusionLM
from dare.models.cache import KVCache, Window


class Reader(Protocol):
    """Turns the canvas into the hidden states of open positions. Cache rows follow the canvas rows."""

    def admit(self, rows: Canvas, start: int) -> None:
        """Take up new rows, which the canvas holds from row ``start`` on."""

    def keep(self, kept_N: Tensor) -> None:
        """Forget the rows that leave."""

    def states(self, rows: Canvas, open_NT: Tensor) -> Tensor:
        """Return the states ``[M, D]`` of the open positions in row-major order."""


def reader_for(model: DiffusionLM, decoding: DecodingConfig, rows: int, width: int) -> Reader:
    """The reader of the configured cache, with room for ``rows`` rows of ``width`` positions."""
    kind = decoding.cache_for(model.spec)
    if kind != "none" and isinstance(model, CachingLM):
        return BlockCached(model, rows, width) if kind == "block" else SpanCached(model, decoding, rows, width)
    if decoding.cache not in ("auto", "none"):
        raise DareError(f"{type(model).__name__} keeps no keys and values; set decoding.cache=none")
    return Uncached(model, decoding)


class Uncached:
    """Reads every row from its first token to the end of what it can see. Exact, for any model."""

    def __init__(self, model: DiffusionLM, decoding: DecodingConfig):
        self.model, self.cfg_scale = model, decoding.cfg_scale

    def admit(self, rows: Canvas, start: int) -> None:
        """Nothing to prepare."""

    def keep(self, kept_N: Tensor) -> None:
        """Nothing to forget."""

    def states(self, rows: Canvas, open_NT: Tensor) -> Tensor:
        """Read all rows; rows that may be alike, as the samples of one prompt are at first, are read once."""
        width = int(rows.lengths_N.max())
        if size := self.model.spec.block_size:
            # later blocks cannot be seen, so they need not be computed
            width = min(width, (int(open_NT.any(0).nonzero().max()) // size + 1) * size)
        ids_NT, open_NT = rows.ids_NT[:, :width], open_NT[:, :width]
        lengths_N = rows.lengths_N.clamp_max(width)
        # rows that share noise keys stay alike until their keys part
        first = bool((rows.forwards_N == 0).any()) or rows.key_N.dim() > 1
        states_MD = self._read(ids_NT, lengths_N, open_NT, first)
        if self.cfg_scale:
            # guidance mixes logits (LLaDA, appendix B.2); the head is linear, so states mix alike
            blind_NT = torch.where(rows.response_NT[:, :width], ids_NT, self.model.spec.mask_id)
            blind_MD = self._read(blind_NT, lengths_N, open_NT, first)
            states_MD = blind_MD + (self.cfg_scale + 1) * (states_MD - blind_MD)
        return states_MD

    def _read(self, ids_NT: Tensor, lengths_N: Tensor, open_NT: Tensor, first: bool) -> Tensor:
        if not first:
            return self.model.hidden(ids_NT, lengths_N)[open_NT]
        first_U, group_N = alike(ids_NT, lengths_N)
        hidden_UTD = self.model.hidden(ids_NT[first_U], lengths_N[first_U])
        row_M, column_M = open_NT.nonzero(as_tuple=True)
        return hidden_UTD[group_N[row_M], column_M]


class BlockCached:
    """Exact, for block-causal models: finished blocks never change, so their keys and values are computed once.

    They are taken over together with the first step of the next block: one pass over both blocks, and the vocabulary
    meets the open positions only.
    """

    def __init__(self, model: CachingLM, rows: int, width: int):
        assert model.spec.block_size, "block-causal models name their block size"
        self.model, self.size = model, model.spec.block_size
        self.cache = model.cache(rows, width)
        self.held_N = torch.zeros(0, dtype=torch.int64)

    def admit(self, rows: Canvas, start: int) -> None:
        """Compute the whole blocks of each distinct prompt once, and share them among the rows that begin with it."""
        self.held_N = self.held_N.to(rows.current_N.device)
        blocks_N = torch.where(rows.finished_N, 0, rows.current_N)
        width = int(blocks_N.max()) * self.size
        if width:
            prompt_NT = rows.ids_NT[:, :width].masked_fill(
                torch.arange(width, device=blocks_N.device) >= (blocks_N * self.size)[:, None], self.model.spec.pad_id
            )
            first_U, group_N = alike(prompt_NT, blocks_N)
            position_NW = torch.arange(width, device=blocks_N.device).expand(len(first_U), -1)
            window = Window(self.cache, position_NW, width, start + first_U)
            self.model.hidden(prompt_NT[first_U], rows.lengths_N[first_U], window=window)
            self.cache.copy(start + first_U[group_N], start + torch.arange(len(rows), device=blocks_N.device))
        self.held_N = torch.cat([self.held_N, blocks_N])

    def keep(self, kept_N: Tensor) -> None:
        """Move the rows that stay to the front."""
        source_N = kept_N.nonzero()[:, 0]
        self.cache.copy(source_N, torch.arange(len(source_N), device=kept_N.device))
        self.held_N = self.held_N[kept_N]

    def states(self, rows: Canvas, open_NT: Tensor) -> Tensor:
        """Read each row's block, and before it the blocks that any row has finished since the last pass."""
        behind = int((rows.current_N - self.held_N).max())
        extra = behind * self.size or self.model.lead
        begin_N = (rows.current_N * self.size - extra).clamp_min(0)
        states_MD = _read_window(self.model, self.cache, rows, open_NT, begin_N, self.size + extra)
        self.held_N = rows.current_N.clone()
        return states_MD


class SpanCached:
    """Approximate, for full-attention models: at the first step of a block all keys and values are computed anew; until
    the block is finished only its own positions are ("dual"), or those from its first position to the end ("prefix");
    the others keep the keys and values of that first step (Fast-dLLM, arXiv 2505.22618, section 3.1).
    """

    def __init__(self, model: CachingLM, decoding: DecodingConfig, rows: int, width: int):
        self.model, self.size = model, decoding.block_for(model.spec)
        self.to_the_end = decoding.cache == "prefix"
        self.cache = model.cache(rows, width)

    def admit(self, rows: Canvas, start: int) -> None:
        """The first step of the first block fills the cache."""

    def keep(self, kept_N: Tensor) -> None:
        """Move the rows that stay to the front."""
        source_N = kept_N.nonzero()[:, 0]
        self.cache.copy(source_N, torch.arange(len(source_N), device=kept_N.device))

    def states(self, rows: Canvas, open_NT: Tensor) -> Tensor:
        """Read rows that have just entered a block whole, the others in part."""
        fresh_N = rows.round_N == 0
        if bool(fresh_N.all()):
            return self._whole(rows, open_NT, None)
        if not bool(fresh_N.any()):
            return self._part(rows, open_NT, None)
        row_M = open_NT.nonzero(as_tuple=True)[0]
        fresh, stale = fresh_N.nonzero()[:, 0], (~fresh_N).nonzero()[:, 0]
        whole_MD = self._whole(rows.select(fresh), open_NT[fresh], fresh)
        states_MD = whole_MD.new_empty(len(row_M), whole_MD.shape[1])
        states_MD[fresh_N[row_M]] = whole_MD
        states_MD[~fresh_N[row_M]] = self._part(rows.select(stale), open_NT[stale], stale)
        return states_MD

    def _whole(self, rows: Canvas, open_NT: Tensor, row_N: Tensor | None) -> Tensor:
        width = int(rows.lengths_N.max())
        first_U, group_N = alike(rows.ids_NT[:, :width], rows.lengths_N)
        where_N = torch.arange(len(rows), device=group_N.device) if row_N is None else row_N
        position_NW = torch.arange(width, device=group_N.device).expand(len(first_U), -1)
        window = Window(self.cache, position_NW, width, where_N[first_U])
        hidden_UTD = self.model.hidden(rows.ids_NT[first_U, :width], rows.lengths_N[first_U], window=window)
        if len(first_U) < len(rows):
            self.cache.copy(where_N[first_U[group_N]], where_N)
        row_M, column_M = open_NT.nonzero(as_tuple=True)
        return hidden_UTD[group_N[row_M], column_M]

    def _part(self, rows: Canvas, open_NT: Tensor, row_N: Tensor | None) -> Tensor:
        begin_N = rows.first_N + rows.current_N * self.size
        width = int((rows.lengths_N - begin_N).max())
        if not self.to_the_end:
            width = min(width, self.size)
        begin_N, width = (begin_N - self.model.lead).clamp_min(0), width + self.model.lead
        return _read_window(self.model, self.cache, rows, open_NT, begin_N, width, row_N)


def _read_window(
    model: CachingLM,
    cache: KVCache,
    rows: Canvas,
    open_NT: Tensor,
    begin_N: Tensor,
    width: int,
    row_N: Tensor | None = None,
) -> Tensor:
    """States of the open positions, from a pass over ``width`` positions of each row from ``begin_N`` on.

    What lies beyond a row falls on the last column of the canvas, which no row uses and none attends to.
    """
    position_NW = begin_N[:, None] + torch.arange(width, device=begin_N.device)
    position_NW = position_NW.clamp_max(rows.ids_NT.shape[1] - 1)
    end = int(rows.lengths_N.max())
    if model.spec.block_size:
        end = min(end, int(position_NW.max()) + 1)
    window = Window(cache, position_NW, end, row_N)
    hidden_NWD = model.hidden(rows.ids_NT.gather(1, position_NW), rows.lengths_N, window=window)
    return hidden_NWD[open_NT.gather(1, position_NW)]


def alike(ids_NT: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return one row of each kind, and which of them every row is equal to."""
    _, group_N = torch.cat([ids_NT, lengths_N[:, None]], 1).unique(dim=0, return_inverse=True)
    order_N = torch.arange(len(group_N), device=group_N.device)
    first_U = order_N.new_full((int(group_N.max()) + 1,), len(group_N)).scatter_reduce(0, group_N, order_N, "amin")
    return first_U, group_N
