"""How much memory one training pass needs besides weights, gradients and moments, from short trial passes.

Autograd keeps tensors from the forward pass until the backward pass has used them. How many depends on the family, on
an adapter and on the attention back end, so they are counted, not derived. Per row they are a polynomial of degree two
in the width (masks and plain attention weights are square), which three widths determine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dare.diffusion.vocabulary import parts_of
from dare.models.pair import span_size
from dare.models.transformer import Transformer

_ROWS, _WIDTH = 2, 4
"""Of a trial pass, under full attention."""


@dataclass(frozen=True)
class Activations:
    """Bytes at the start of the backward pass. ``states``: what the decoder kept; ``logits``: of the vocabulary."""

    states: int
    logits: int


def activations(model: Transformer, rows: int, width: int, scored: int) -> Activations:
    """Memory of a pass over ``rows`` sequences of ``width`` tokens of which ``scored`` in all meet the vocabulary."""
    # pairs are cut into spans: what a part of one keeps says nothing about many
    unit = _WIDTH if model.spec.block_size is None else span_size(model.spec.block_size)
    read = scored / (rows * width) if scored else 1.0
    per_pair = _extrapolate([kept_bytes(model, times * unit, read=read) for times in (1, 2, 3)], width / unit)
    wide = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    if not scored:
        return Activations(round(per_pair * rows / _ROWS), 0)
    # logits and their gradient, at least in float32, and the head's gradient before it is added to the others
    head = model.embed.weight if model.arch.tied else model.unembed.weight
    logits = 2 * wide.itemsize * scored * parts_of(scored, model.spec.vocab_size)[0].stop
    return Activations(round(per_pair * rows / _ROWS), logits + (head.nbytes if head.requires_grad else 0))


def kept_bytes(model: Transformer, width: int, rows: int = _ROWS, read: float = 1.0) -> int:
    """Bytes that autograd keeps, weights aside, for a pass over ``rows`` rows whose last share ``read`` is read."""
    kept = {_place(weight): 0 for weight in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(_place(tensor), tensor.untyped_storage().nbytes())
        return tensor.detach()  # alive, so that no place is met twice

    device = next(model.parameters()).device
    ids_NT = torch.zeros(rows, width, dtype=torch.int64, device=device)
    lengths_N = torch.full((rows,), width)
    read_NT = (torch.arange(width) >= min(width - 1, round(width * (1 - read)))).expand(rows, -1)
    clean_NT = ids_NT if model.spec.attention == "block_causal" else None
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        states = model.states(ids_NT, lengths_N, read_NT, clean_NT=clean_NT)
    del states
    return sum(kept.values())


def _place(tensor: Tensor) -> int:
    """What tensors over the same memory share, also on the meta device, where every address is zero."""
    return tensor.untyped_storage()._cdata


def _extrapolate(values: list[int], place: float) -> float:
    """Continue a polynomial of degree two from its values at 1, 2 and 3 (Newton's forward differences)."""
    first, second, third = values
    steps = place - 1
    return first + steps * (second - first) + steps * (steps - 1) / 2 * (third - 2 * second + first)
