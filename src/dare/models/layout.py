"""Rows without padding: their tokens in one list, which is all that linear layers need to see.

Attention works on groups of rows of one shape; the states come from the places that are read, in the order of the rows.
"""

from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from dare.models.attention import sdpa
from dare.models.pair import Pair, Span, attend_pairs, pair_of, spans_of


@dataclass(frozen=True)
class Group:
    """``rows`` rows that hold the same; without ``spans`` every token sees every other of its row."""

    rows: int
    pair: Pair
    spans: list[Span]

    def attend(self, *qkv: Tensor) -> Tensor:
        """Mix the values, ``[rows x size, heads, E]``, that each token sees."""
        q, k, v = (x.unflatten(0, (self.rows, -1)).transpose(1, 2) for x in qkv)
        mixed = attend_pairs(self.pair, self.spans, q, k, v) if self.spans else sdpa(q, k, v)
        return mixed.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class Layout:
    """``source_M`` where each token of the list is found in the flattened ids (shown ones, then clean ones),
    ``position_M`` its position in its row, ``read_R`` the places whose states are read.
    """

    groups: list[Group]
    source_M: Tensor
    position_M: Tensor
    read_R: Tensor

    def attend(self, q_MHE: Tensor, k_MHE: Tensor, v_MHE: Tensor) -> Tensor:
        """Mix the values, ``[M, heads, E]``, that each token sees."""
        sizes = [group.rows * group.pair.size for group in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in (q_MHE, k_MHE, v_MHE)), strict=True)
        return torch.cat([group.attend(*qkv) for group, *qkv in parts])


def lay_out(
    lengths: list[int], read_NT: Tensor, *, block_size: int | None, next_token: bool, device: torch.device
) -> Layout:
    """Lay out rows of ``lengths`` so that the tokens at ``read_NT`` (on the CPU, some in each row) can be predicted.

    ``block_size`` None: full attention; else every row is a pair. With ``next_token`` a token is predicted from the
    place before it.
    """
    pairs = [
        pair_of(length, read_T, block_size) if block_size else Pair(0, 0, length)
        for length, read_T in zip(lengths, read_NT, strict=True)
    ]
    order = sorted(range(len(pairs)), key=lambda row: (pairs[row].clean, pairs[row].start, pairs[row].stop))
    shown_NT, clean_NT = (torch.full(read_NT.shape, -1) for _ in range(2))
    source, position, place = [], [], 0
    for row in order:
        pair = pairs[row]
        clean_T, shown_T = torch.arange(pair.clean), torch.arange(pair.start, pair.stop)
        clean_NT[row, : pair.clean] = clean_T + place
        shown_NT[row, pair.start : pair.stop] = shown_T - pair.start + pair.clean + place
        source += [clean_T + (len(pairs) + row) * read_NT.shape[1], shown_T + row * read_NT.shape[1]]
        position += [clean_T, shown_T]
        place += pair.size
    read_R = (_before(shown_NT, clean_NT, block_size) if next_token else shown_NT)[read_NT]
    groups = [
        Group(len(list(same)), pair, spans_of(pair, block_size, device) if block_size else [])
        for pair, same in groupby(pairs[row] for row in order)
    ]
    return Layout(groups, *(x.to(device) for x in (torch.cat(source), torch.cat(position), read_R)))


def _before(shown_NT: Tensor, clean_NT: Tensor, block_size: int | None) -> Tensor:
    """The place before each token; the first token has none and is predicted from its own."""
    position_T = torch.arange(shown_NT.shape[1])
    # the token before a block is clean by the time the block is decoded
    opens_T = (position_T % block_size == 0) & (position_T > 0) if block_size else position_T < 0
    return torch.where(opens_T, moved(clean_NT), moved(shown_NT))


def moved(x_NT: Tensor) -> Tensor:
    """Move what is at each position, ``[N, T, ...]``, one position on; the first one keeps its own."""
    return torch.cat([x_NT[:, :1], x_NT[:, :-1]], dim=1)
