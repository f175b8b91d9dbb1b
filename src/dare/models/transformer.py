"""The one decoder behind every family: RMSNorm, rotary attention, gated MLP; full or block-causal visibility."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.diffusion.likelihood import token_logp
from dare.models.attention import block_causal_mask, full_mask, noised_clean_mask, window_mask
from dare.models.base import ModelSpec
from dare.models.cache import KVCache, LayerWindow, Window
from dare.models.moe import Experts, GatedMLP, SparseMLP
from dare.models.shift import previous_states


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
        self.q = nn.Linear(arch.hidden_size, wide, bias=arch.qkv_bias)
        self.k = nn.Linear(arch.hidden_size, narrow, bias=arch.qkv_bias)
        self.v = nn.Linear(arch.hidden_size, narrow, bias=arch.qkv_bias)
        self.o = nn.Linear(wide, arch.hidden_size, bias=False)
        if arch.qk_norm:
            self.q_norm = nn.RMSNorm(arch.head_size, eps=arch.norm_eps)
            self.k_norm = nn.RMSNorm(arch.head_size, eps=arch.norm_eps)

    def forward(
        self, x_NTD: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, past: LayerWindow | None
    ) -> Tensor:
        """Attend within each row under ``mask`` (True: may look); with ``past`` also to what the cache holds."""
        q, k, v = (project(x_NTD).unflatten(-1, (-1, self.arch.head_size)) for project in (self.q, self.k, self.v))
        if self.arch.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
        q, k = rotate(q, rope), rotate(k, rope)
        if past is not None:
            k, v = past.exchange(k, v)
        shared = self.arch.kv_heads != self.arch.heads
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared)
        return self.o(mixed.transpose(1, 2).flatten(2))


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

    def forward(
        self, x_NTD: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, past: LayerWindow | None
    ) -> Tensor:
        """Return the residual stream after attention and MLP."""
        x_NTD = x_NTD + self.attention(self.attention_norm(x_NTD), rope, mask, past)
        return x_NTD + self.mlp(self.mlp_norm(x_NTD))


class Transformer(nn.Module):
    """The decoder as a ``DiffusionLM``."""

    def __init__(self, arch: Architecture, spec: ModelSpec):
        super().__init__()
        self.arch, self.spec = arch, spec
        self.embed = nn.Embedding(spec.vocab_size, arch.hidden_size)
        self.blocks = nn.ModuleList(Block(arch, layer) for layer in range(arch.layers))
        self.norm = nn.RMSNorm(arch.hidden_size, eps=arch.norm_eps)
        if not arch.tied:
            self.unembed = nn.Linear(arch.hidden_size, spec.vocab_size, bias=False)

    def hidden(
        self, ids_NT: Tensor, lengths_N: Tensor, *, clean_NT: Tensor | None = None, window: Window | None = None
    ) -> Tensor:
        """See ``DiffusionLM.hidden``; padding at or beyond ``lengths_N`` is never attended.

        With ``window`` the ids are those of its positions alone, and the states returned are theirs.
        """
        width = ids_NT.shape[1]
        positions_T = torch.arange(width, device=ids_NT.device) if window is None else window.position_NW
        mask = self._mask(positions_T, lengths_N, clean_NT is not None, window)
        if clean_NT is not None:
            ids_NT, positions_T = torch.cat([ids_NT, clean_NT], dim=1), positions_T.repeat(2)
        rope = rope_tables(positions_T, self.arch, self.embed.weight.dtype)
        x_NTD = self.embed(ids_NT)
        for number, block in enumerate(self.blocks):
            x_NTD = block(x_NTD, rope, mask, window and window.layer(number))
        if not self.arch.next_token:
            return self.norm(x_NTD[:, :width])
        clean_NTD = None if clean_NT is None else x_NTD[:, width:]
        return self.norm(previous_states(x_NTD[:, :width], clean_NTD, self.spec.block_size))

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

    def read(self, hidden_MD: Tensor, ids_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``[M]`` and logits ``[M, V]``; see ``Scorer.read``."""
        return token_logp(self.head(hidden_MD), ids_M, temperature)

    def _mask(self, positions_T: Tensor, lengths_N: Tensor, paired: bool, window: Window | None) -> Tensor | None:
        if window is not None:
            return window_mask(window.position_NW, lengths_N, window.end, self.spec.block_size)
        valid_NT = positions_T < lengths_N[:, None]
        if self.spec.attention == "full":
            return full_mask(valid_NT)
        assert self.spec.block_size, "a block-causal spec names its block size"
        build = noised_clean_mask if paired else block_causal_mask
        return build(valid_NT, self.spec.block_size)


def rope_tables(positions_T: Tensor, arch: Architecture, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions (arXiv 2104.09864), computed in float32 or wider.

    ``[T, rotary]``, or ``[N, 1, W, rotary]`` where every row has its own positions ``[N, W]``.
    """
    wide = torch.promote_types(dtype, torch.float32)
    exponent = torch.arange(0, arch.rotary_size, 2, device=positions_T.device, dtype=wide) / arch.rotary_size
    angle = positions_T.to(wide)[..., None] / arch.rope_theta**exponent
    angle = torch.cat([angle, angle], dim=-1)
    if positions_T.dim() > 1:
        angle = angle.unsqueeze(1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the two halves of each head's leading features (the GPT-NeoX pairing), in the tables' precision."""
    cos, sin = rope
    size = cos.shape[-1]
    turning, still = x[..., :size].to(cos.dtype), x[..., size:]
    first, second = turning.chunk(2, dim=-1)
    turned = (turning * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)
    return torch.cat([turned, still], -1) if still.shape[-1] else turned
