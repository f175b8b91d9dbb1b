"""The one decoder behind every family: RMSNorm, rotary attention, gated MLP; full or block-causal visibility."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dare.diffusion.cut import cut_logp
from dare.diffusion.vocabulary import Reading, linear_logp
from dare.models.attention import attend, block_causal_mask, full_mask, window_mask
from dare.models.base import ModelSpec
from dare.models.cache import KVCache, LayerWindow, Window
from dare.models.layout import lay_out, moved
from dare.models.linear import Linear
from dare.models.moe import Experts, GatedMLP, SparseMLP
from dare.models.rope import Rope, rope_tables, rotate

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries, keys, values, each [..., heads, E]) -> the values each query sees, mixed."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Sizes and constants of the decoder; a family's file derives it from ``config.json``.

    ``kv_heads`` key and value heads, each shared by several query heads; ``rotary_size`` leading features of a head
    that rotate; ``qk_norm`` RMS norm of query and key heads before rotation; ``tied`` one matrix for input and output;
    ``next_token`` the weights predict the token after a position, so the decoder moves its states one position on.
    """

    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    rotary_size: int
    mlp_size: int
    rope_theta: float
    norm_eps: float = 1e-5
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    next_token: bool = False
    experts: Experts | None = None


class Attention(nn.Module):
    """Grouped-query attention (arXiv 2305.13245) with rotary positions."""

    def __init__(self, arch: Architecture):
        super().__init__()
        self.arch = arch
        wide, narrow = arch.heads * arch.head_size, arch.kv_heads * arch.head_size
        self.q = Linear(arch.hidden_size, wide, bias=arch.qkv_bias)
        self.k = Linear(arch.hidden_size, narrow, bias=arch.qkv_bias)
        self.v = Linear(arch.hidden_size, narrow, bias=arch.qkv_bias)
        self.o = Linear(wide, arch.hidden_size, bias=False)
        if arch.qk_norm:
            self.q_norm = nn.RMSNorm(arch.head_size, eps=arch.norm_eps)
            self.k_norm = nn.RMSNorm(arch.head_size, eps=arch.norm_eps)

    def forward(self, x: Tensor, rope: Rope, attend: Attend) -> Tensor:
        """Mix what ``attend`` lets each position of ``x`` [..., D] see; it may return fewer positions than it got."""
        q, k, v = (project(x).unflatten(-1, (-1, self.arch.head_size)) for project in (self.q, self.k, self.v))
        if self.arch.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.o(attend(rotate(q, rope), rotate(k, rope), v).flatten(-2))


class Block(nn.Module):
    """Pre-norm residual block."""

    def __init__(self, arch: Architecture, layer: int):
        super().__init__()
        self.attention_norm = nn.RMSNorm(arch.hidden_size, eps=arch.norm_eps)
        self.attention = Attention(arch)
        self.mlp_norm = nn.RMSNorm(arch.hidden_size, eps=arch.norm_eps)
        self.mlp: nn.Module = GatedMLP(arch.hidden_size, arch.mlp_size)
        if arch.experts and layer >= arch.experts.first_dense:
            self.mlp = SparseMLP(arch.hidden_size, arch.experts)

    def forward(self, x: Tensor, rope: Rope, attend: Attend, read_R: Tensor | None = None) -> Tensor:
        """Return the residual stream after attention and MLP; with ``read_R`` at these places of the list alone."""
        if read_R is None:
            x = x + self.attention(self.attention_norm(x), rope, attend)
        else:
            mixed = self.attention(self.attention_norm(x), rope, lambda *qkv: attend(*qkv).index_select(0, read_R))
            x = x.index_select(0, read_R) + mixed
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """The decoder as a ``DiffusionLM``.

    ``recompute`` keeps only what enters each layer of ``states`` and computes the rest again in the backward pass
    (arXiv 1604.06174): about a third more time, and the memory of one layer. ``cut`` reads log-probabilities by the
    kernels of ``diffusion/cut.py``.
    """

    def __init__(self, arch: Architecture, spec: ModelSpec):
        super().__init__()
        self.arch, self.spec, self.recompute, self.cut = arch, spec, False, False
        self.embed = nn.Embedding(spec.vocab_size, arch.hidden_size)
        self.blocks = nn.ModuleList(Block(arch, layer) for layer in range(arch.layers))
        self.norm = nn.RMSNorm(arch.hidden_size, eps=arch.norm_eps)
        if not arch.tied:
            self.unembed = Linear(arch.hidden_size, spec.vocab_size, bias=False)

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor, *, window: Window | None = None) -> Tensor:
        """See ``DiffusionLM.hidden``; padding at or beyond ``lengths_N`` is never attended.

        With ``window`` the ids are those of its positions alone, and the states returned are theirs.
        """
        position = torch.arange(ids_NT.shape[1], device=ids_NT.device) if window is None else window.position_NW
        mask = self._mask(position, lengths_N, window)
        rope, x_NTD = self._rope(position), self.embed(ids_NT)
        for number, block in enumerate(self.blocks):
            past = None if window is None else window.layer(number)
            x_NTD = block(x_NTD, rope, partial(_attend_rows, mask, past))
        return self.norm(moved(x_NTD) if self.arch.next_token else x_NTD)

    def states(self, shown_NT: Tensor, lengths_N: Tensor, read_NT: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """See ``Scorer.states``; nothing is computed for padding, nor in the last MLP for what is not read."""
        layout = lay_out(
            lengths_N.tolist(),
            read_NT.cpu(),
            block_size=None if clean_NT is None else self.spec.block_size,
            next_token=self.arch.next_token,
            device=shown_NT.device,
        )
        ids_M = (shown_NT if clean_NT is None else torch.cat([shown_NT, clean_NT])).flatten()[layout.source_M]
        rope, x_MD = self._rope(layout.position_M), self.embed(ids_M)
        for number, block in enumerate(self.blocks, start=1):
            read_R = layout.read_R if number == len(self.blocks) else None
            if self.recompute and torch.is_grad_enabled():
                x_MD = checkpoint(block, x_MD, rope, layout.attend, read_R, use_reentrant=False)
            else:
                x_MD = block(x_MD, rope, layout.attend, read_R)
        return self.norm(x_MD)

    @property
    def lead(self) -> int:
        """Positions before a window that must be in it for the window's first state to be right."""
        return int(self.arch.next_token)

    def cache(self, rows: int, width: int) -> KVCache:
        """An empty store for ``rows`` rows of at most ``width`` positions."""
        return KVCache(
            self.arch.layers, (rows, self.arch.kv_heads, width, self.arch.head_size), self.embed.weight.detach()
        )

    def head(self, hidden_MD: Tensor) -> Tensor:
        """See ``DiffusionLM.head``."""
        return F.linear(hidden_MD, self.embed.weight) if self.arch.tied else self.unembed(hidden_MD)

    def read(self, hidden_MD: Tensor, ids_M: Tensor, temperature: float, *, entropy: bool = False) -> Reading:
        """See ``Scorer.read``."""
        weight_VD = self.embed.weight if self.arch.tied else self.unembed.weight
        if self.cut and not entropy:
            return cut_logp(hidden_MD, weight_VD, ids_M, temperature)
        return linear_logp(hidden_MD, weight_VD, ids_M, temperature, entropy=entropy)

    def _rope(self, position: Tensor) -> Rope:
        return rope_tables(position, self.arch.rotary_size, self.arch.rope_theta, self.embed.weight.dtype)

    def _mask(self, position: Tensor, lengths_N: Tensor, window: Window | None) -> Tensor | None:
        if window is not None:
            return window_mask(window.position_NW, lengths_N, window.end, self.spec.block_size)
        valid_NT = position < lengths_N[:, None]
        size = self.spec.block_size
        return full_mask(valid_NT) if size is None else block_causal_mask(valid_NT, size)


def _attend_rows(mask: Tensor | None, past: LayerWindow | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend within padded rows under ``mask``; with ``past`` also to what the cache holds."""
    if past is not None:
        k, v = (x.transpose(1, 2) for x in past.exchange(k.transpose(1, 2), v.transpose(1, 2)))
    return attend(mask, q, k, v)
