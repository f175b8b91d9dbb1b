"""Who may attend to whom in padded rows, as boolean masks for scaled-dot-product attention."""

import torch
import torch.nn.functional as F
from torch import Tensor


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of ``[N, heads, T, E]`` under ``mask`` (True: may look); query heads share key heads that are fewer."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


def attend(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``sdpa`` of queries, keys and values laid out as ``[N, T, heads, E]``."""
    return sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask).transpose(1, 2)


def full_mask(valid_NT: Tensor) -> Tensor | None:
    """Every query sees every valid key: ``[N, 1, 1, T]``, or None when nothing is padded."""
    return valid_NT[:, None, None, :] if _padded(valid_NT) else None


def block_causal_mask(valid_NT: Tensor, block_size: int) -> Tensor:
    """Query q sees valid key k iff block(k) <= block(q): ``[N, 1, T, T]``.

    The diagonal is always open so that a padded query has a key and its softmax stays finite.
    """
    block_T = torch.arange(valid_NT.shape[1], device=valid_NT.device) // block_size
    return _with_padding(block_T[:, None] >= block_T[None, :], valid_NT)


def window_mask(position_NW: Tensor, lengths_N: Tensor, end: int, block_size: int | None) -> Tensor:
    """A query at ``position_NW`` sees the first ``end`` cached keys that are valid and, in a block-causal model (one
    with a ``block_size``), not in a later block: ``[N, 1, W, end]``, or ``[N, 1, 1, end]`` under full attention.
    """
    key_T = torch.arange(end, device=position_NW.device)
    valid_N1T = key_T < lengths_N[:, None, None]
    if block_size is None:
        return valid_N1T[:, None]
    open_NWT = key_T < (position_NW // block_size + 1)[..., None] * block_size
    return (open_NWT & valid_N1T)[:, None]


def _with_padding(allowed_TT: Tensor, valid_NT: Tensor) -> Tensor:
    if _padded(valid_NT):
        diagonal_TT = torch.eye(allowed_TT.shape[0], dtype=torch.bool, device=allowed_TT.device)
        return ((allowed_TT & valid_NT[:, None, :]) | diagonal_TT)[:, None]
    return allowed_TT[None, None]


def _padded(valid_NT: Tensor) -> bool:
    """Whether some row is shorter than the others; on the meta device, which holds no values, it is taken to be."""
    return valid_NT.is_meta or not bool(valid_NT.all())
