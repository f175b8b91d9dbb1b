"""The published samplers as their authors' code words them, for comparison: nothing saved, nothing shared.

Every step projects every position on the vocabulary, samples everywhere, and keeps what the quota allows. The model is
the same ``Transformer``; only the sampler differs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dare.decoding.schedule import quotas
from dare.models.rope import rope_tables, rotate
from dare.models.transformer import Transformer


@torch.no_grad()
def masked(model: Transformer, prompt_BP: Tensor, length: int, block: int, steps: int, temperature: float) -> Tensor:
    """LLaDA's sampler (arXiv 2502.09992, appendix B): a batch of prompts of one length, full sequences, all logits."""
    spec, batch, start = model.spec, *prompt_BP.shape
    ids_BT = torch.cat([prompt_BP, prompt_BP.new_full((batch, length), spec.mask_id)], 1)
    lengths_B = torch.full((batch,), ids_BT.shape[1])
    for first in range(start, start + length, block):
        for quota in quotas(block, steps * block // length, "even"):
            logits_BTV = model.head(model.hidden(ids_BT, lengths_B).flatten(0, 1)).unflatten(0, (batch, -1))
            _fill(ids_BT, logits_BTV, first + block, quota, temperature, spec.mask_id)
    return ids_BT


def _fill(ids_BT: Tensor, logits_BTV: Tensor, end: int, quota: int, temperature: float, mask_id: int) -> None:
    """Gumbel-max in double precision everywhere, then the best of the block."""
    _commit(ids_BT, logits_BTV, _gumbel(logits_BTV, temperature).argmax(-1), end, quota, mask_id)


def _commit(ids_BT: Tensor, logits_BTV: Tensor, token_BT: Tensor, end: int, quota: int, mask_id: int) -> None:
    """Confidence from a softmax everywhere."""
    masked_BT = ids_BT == mask_id
    p_BTV = F.softmax(logits_BTV, -1)
    confidence_BT = p_BTV.gather(-1, token_BT[..., None])[..., 0]
    confidence_BT[:, end:] = -torch.inf
    confidence_BT = torch.where(masked_BT, confidence_BT, -torch.inf)
    for row, confidence_T in enumerate(confidence_BT):
        chosen = confidence_T.topk(quota).indices
        ids_BT[row, chosen] = token_BT[row, chosen]


def _gumbel(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return logits
    logits = logits.double()
    return logits.exp() / (-torch.rand_like(logits, dtype=torch.float64).log()) ** temperature


def _draw(logits_1WV: Tensor, temperature: float) -> Tensor:
    """SDAR draws from a softmax in the model's precision."""
    if temperature == 0:
        return logits_1WV.argmax(-1)
    return torch.multinomial(F.softmax(logits_1WV[0] / temperature, -1), 1).T


@torch.no_grad()
def dual_cached(model: Transformer, prompt_P: Tensor, length: int, block: int, steps: int) -> Tensor:
    """Fast-dLLM's dual cache (arXiv 2505.22618), a prompt at a time: a whole pass per block, then its window."""
    spec = model.spec
    ids_1T = torch.cat([prompt_P, prompt_P.new_full((length,), spec.mask_id)])[None]
    for first in range(len(prompt_P), ids_1T.shape[1], block):
        store: list[tuple[Tensor, Tensor]] = []
        for step, quota in enumerate(quotas(block, steps * block // length, "even")):
            if step == 0:
                logits_1TV = model.head(_states(model, ids_1T, 0, store, "fill"))
                _fill(ids_1T, logits_1TV, first + block, quota, 0.0, spec.mask_id)
            else:
                window_1W = ids_1T[:, first : first + block]
                _fill(
                    window_1W,
                    model.head(_states(model, window_1W, first, store, "replace")),
                    block,
                    quota,
                    0.0,
                    spec.mask_id,
                )
    return ids_1T


@torch.no_grad()
def block_cached(model: Transformer, prompt_P: Tensor, length: int, steps: int, temperature: float) -> Tensor:
    """SDAR's sampler (arXiv 2510.06303), one prompt at a time: keys and values grow by concatenation, every finished
    block is passed once more to store them, and every pass ends in logits.
    """
    spec, size = model.spec, model.spec.block_size
    ids_1T = torch.cat([prompt_P, prompt_P.new_full((length,), spec.mask_id)])[None]
    store: list[tuple[Tensor, Tensor]] = []
    whole = len(prompt_P) // size * size
    model.head(_states(model, ids_1T[:, :whole], 0, store, "append"))
    for first in range(whole, ids_1T.shape[1], size):
        block_1W = ids_1T[:, first : first + size]
        for quota in quotas(size, steps, "even"):
            logits_1WV = model.head(_states(model, block_1W, first, store, "read"))
            _commit(block_1W, logits_1WV, _draw(logits_1WV, temperature), size, quota, spec.mask_id)
        model.head(_states(model, block_1W, first, store, "append"))
    return ids_1T


def _states(model: Transformer, ids_1W: Tensor, first: int, store: list[tuple[Tensor, Tensor]], mode: str) -> Tensor:
    """Run a window against stored keys and values; ``mode`` says what becomes of its own."""
    width = ids_1W.shape[1]
    arch, places = model.arch, torch.arange(first, first + width)
    rope = rope_tables(places, arch.rotary_size, arch.rope_theta, model.embed.weight.dtype)
    x = model.embed(ids_1W)
    mask = None
    if model.spec.block_size and mode == "append" and first == 0:
        block_T = torch.arange(width) // model.spec.block_size
        mask = block_T[:, None] >= block_T
    for number, block in enumerate(model.blocks):
        attention, normed = block.attention, block.attention_norm(x)
        q, k, v = (p(normed).unflatten(-1, (-1, model.arch.head_size)) for p in (attention.q, attention.k, attention.v))
        if model.arch.qk_norm:
            q, k = attention.q_norm(q), attention.k_norm(k)
        q, k, v = (x.transpose(1, 2) for x in (rotate(q, rope), rotate(k, rope), v))
        k, v = _stored(k, v, number, first, store, mode)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + attention.o(mixed.transpose(1, 2).flatten(2))
        x = x + block.mlp(block.mlp_norm(x))
    return model.norm(x)


def _stored(
    k: Tensor, v: Tensor, number: int, first: int, store: list[tuple[Tensor, Tensor]], mode: str
) -> tuple[Tensor, Tensor]:
    if mode == "fill" or (mode == "append" and number >= len(store)):
        store.append((k, v))
        return k, v
    old_k, old_v = store[number]
    if mode == "replace":
        old_k[:, :, first : first + k.shape[2]], old_v[:, :, first : first + v.shape[2]] = k, v
        return old_k, old_v
    k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
    if mode == "append":
        store[number] = (k, v)
    return k, v
