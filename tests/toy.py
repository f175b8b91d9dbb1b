import torch
from torch import Tensor

from dare.models.base import ModelSpec
from dare.models.transformer import Architecture, Transformer


def toy_model(
    vocab_size: int = 5, attention: str = "full", block_size: int | None = None, seed: int = 0
) -> Transformer:
    """A float64 decoder small enough to enumerate: ids 0..V-4 are words, then EOS, pad and mask."""
    spec = ModelSpec(
        family="toy",
        mask_id=vocab_size - 1,
        eos_ids=(vocab_size - 3,),
        pad_id=vocab_size - 2,
        vocab_size=vocab_size,
        context=64,
        attention=attention,
        block_size=block_size,
    )
    torch.manual_seed(seed)
    arch = Architecture(
        hidden_size=16, layers=2, heads=2, kv_heads=2, head_size=8, rotary_size=8, mlp_size=24, rope_theta=100.0
    )
    model = Transformer(arch, spec).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


def all_states(
    model: Transformer, shown_NT: Tensor, lengths_N: Tensor | None = None, clean_NT: Tensor | None = None
) -> Tensor:
    """The states ``[N, T, D]`` of every token of padded rows, as training reads them; zero on padding."""
    rows, width = shown_NT.shape
    lengths_N = torch.full((rows,), width) if lengths_N is None else lengths_N
    valid_NT = torch.arange(width) < lengths_N[:, None]
    states_MD = model.states(shown_NT, lengths_N, valid_NT, clean_NT=clean_NT)
    return states_MD.new_zeros(rows, width, states_MD.shape[1]).masked_scatter(valid_NT[..., None], states_MD)
