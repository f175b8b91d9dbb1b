"""Attention over pairs of clean and shown tokens, the training layout of block diffusion (BD3-LM, arXiv 2503.09573).

A shown token sees the shown tokens of its block and the clean ones of strictly earlier blocks; a clean token sees the
clean ones up to the end of its block. So a row needs its clean tokens only up to its last block that is read, its shown
ones only in the blocks that are read, and no score between a query and what follows its span.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dare.models.attention import sdpa

_SPAN = 128
"""Positions whose queries share one attention call."""


@dataclass(frozen=True)
class Pair:
    """What is held of a row: its first ``clean`` tokens, then those from ``start`` to ``stop`` as they are shown.

    A row without clean tokens is shown whole.
    """

    clean: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Tokens held."""
        return self.clean + self.stop - self.start


@dataclass(frozen=True)
class Span:
    """Neighbouring positions: their clean and shown tokens are queries, the shown ones and the clean ones that precede
    or share their blocks are keys. Slices of the pair's clean and shown tokens; ``mask`` [queries, keys].
    """

    clean: slice
    shown: slice
    seen: slice
    mask: Tensor


def pair_of(length: int, read_T: Tensor, block_size: int) -> Pair:
    """What must be held of a row of ``length`` tokens for the states of its blocks that hold anything to read."""
    read = read_T.nonzero()[:, 0]
    start, last = (int(place) // block_size * block_size for place in (read[0], read[-1]))
    return Pair(last, start, min(last + block_size, length))


def spans_of(pair: Pair, block_size: int, device: torch.device) -> list[Span]:
    """Cut a pair into spans of whole blocks."""
    size, spans = span_size(block_size), []
    for first in range(0, pair.stop, size):
        last = min(first + size, pair.stop)
        clean_T = torch.arange(first, max(first, min(last, pair.clean)), device=device)
        shown_T = torch.arange(max(first, pair.start), max(last, pair.start), device=device)
        seen_T = torch.arange(min(last, pair.clean), device=device)
        spans.append(
            Span(
                slice(first, first + len(clean_T)),
                slice(max(first - pair.start, 0), max(last - pair.start, 0)),
                slice(0, len(seen_T)),
                _mask(clean_T // block_size, shown_T // block_size, seen_T // block_size),
            )
        )
    return spans


def span_size(block_size: int) -> int:
    """Positions of a span: whole blocks, one at least."""
    return max(1, _SPAN // block_size) * block_size


def attend_pairs(pair: Pair, spans: list[Span], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Mix ``[N, heads, size, E]`` of rows with the same pair."""
    (q_clean, q_shown), (k_clean, k_shown), (v_clean, v_shown) = (
        x.split([pair.clean, pair.stop - pair.start], dim=2) for x in (q, k, v)
    )
    clean, shown = [], []
    for span in spans:
        mixed = sdpa(
            torch.cat([q_clean[:, :, span.clean], q_shown[:, :, span.shown]], 2),
            torch.cat([k_clean[:, :, span.seen], k_shown[:, :, span.shown]], 2),
            torch.cat([v_clean[:, :, span.seen], v_shown[:, :, span.shown]], 2),
            span.mask,
        )
        parts = mixed.split([span.clean.stop - span.clean.start, span.shown.stop - span.shown.start], 2)
        clean.append(parts[0])
        shown.append(parts[1])
    return torch.cat([*clean, *shown], 2)


def _mask(clean_Q: Tensor, shown_Q: Tensor, seen_K: Tensor) -> Tensor:
    """Who sees whom, from the blocks of a span's clean and shown tokens and of the clean tokens seen."""
    clean_QK = torch.cat([clean_Q[:, None] >= seen_K, clean_Q.new_zeros(len(clean_Q), len(shown_Q)).bool()], 1)
    shown_QK = torch.cat([shown_Q[:, None] > seen_K, shown_Q[:, None] == shown_Q], 1)
    return torch.cat([clean_QK, shown_QK])
