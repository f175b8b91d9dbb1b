"""How much memory one training pass needs besides weights, gradients and moments, from short trial passes.

Autograd keeps tensors from the forward pass until the backward pass has used them. How many depends on the family, on
an adapter and on the attention back end, so they are counted, not derived. Per row they are a polynomial of degree two
in the width (masks and plain attention weights are square), which three widths determine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dare.models.transformer import Transformer

_ROWS, _WIDTH = 2, 4


@dataclass(frozen=True)
class Activations:
    """Bytes at the start of the backward pass. ``states``: what the decoder kept; ``logits``: everything [M, V]."""

    states: int
    logits: int


def activations(model: Transformer, rows: int, width: int, scored: int) -> Activations:
    """Memory of a pass over ``rows`` sequences of ``width`` tokens of which ``scored`` in all meet the vocabulary."""
    per_pair = _extrapolate([kept_bytes(model, times * _WIDTH) for times in (1, 2, 3)], width / _WIDTH)
    wide = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    # log-probabilities, their gradient and that of the logits, all at least in float32
    return Activations(round(per_pair * rows / _ROWS), 3 * scored * model.spec.vocab_size * wide.itemsize)


def kept_bytes(model: Transformer, width: int, rows: int = _ROWS) -> int:
    """Bytes that autograd keeps for a pass over ``rows`` rows; weights are not counted."""
    kept = {_place(weight): 0 for weight in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(_place(tensor), tensor.untyped_storage().nbytes())
        return tensor.detach()  # alive, so that no place is met twice

    device = next(model.parameters()).device
    ids_NT = torch.zeros(rows, width, dtype=torch.int64, device=device)
    lengths_N = torch.full((rows,), width)
    read_NT = torch.ones(rows, width, dtype=torch.bool)
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
