"""Rows in one list without padding: the states and gradients of a dense pass under brute-force masks."""

from functools import partial

import pytest
import torch

import dare.models.pair as pair
from dare.models.attention import attend
from dare.models.layout import lay_out
from dare.models.rope import rope_tables
from dare.models.transformer import Architecture, Transformer
from dare.plan_memory import kept_bytes
from toy import toy_model

LENGTHS = [9, 5, 9, 12, 1]
READS = [(3, 8), (4, 4), (3, 8), (0, 11), (0, 0)]
"""First and last token read of each row; a random part of those between."""


def rows(model):
    generator = torch.Generator().manual_seed(0)
    shown_NT, clean_NT = (torch.randint(0, 2, (len(LENGTHS), 12), generator=generator) for _ in range(2))
    read_NT = torch.rand(shown_NT.shape, generator=generator) < 0.5
    position_T = torch.arange(12)
    for read_T, (first, last) in zip(read_NT, READS, strict=True):
        read_T &= (position_T >= first) & (position_T <= last)
        read_T[[first, last]] = True
    return shown_NT.where(clean_NT == 1, model.spec.mask_id), torch.tensor(LENGTHS), read_NT, clean_NT


def sees(query, key, length, block):
    """Places in [shown; clean] of a row of ``length``."""
    if block is None:
        return True
    q, k = query % length // block, key % length // block
    if query < length:
        return q == k if key < length else k < q
    return key >= length and k <= q


def dense(model, shown_T, clean_T, length, read_T):
    """One row through every layer with an explicit mask; the states that predict what is read."""
    block, paired = model.spec.block_size, clean_T is not None
    ids_T = torch.cat([shown_T[:length], clean_T[:length]]) if paired else shown_T[:length]
    places = range(len(ids_T))
    mask = torch.tensor([[sees(q, k, length, block) for k in places] for q in places])
    position = torch.arange(length).repeat(2 if paired else 1)
    rope = rope_tables(position, model.arch.rotary_size, model.arch.rope_theta, torch.float64)
    x = model.embed(ids_T)[None]
    for layer in model.blocks:
        x = layer(x, rope, partial(attend, mask))
    places = [predictor(int(t), length, block, model.arch.next_token) for t in read_T.nonzero()[:, 0]]
    return model.norm(x)[0, places]


def predictor(token, length, block, next_token):
    if not next_token or token == 0:
        return token
    return token - 1 + (length if block and token % block == 0 else 0)


def model_of(block, next_token, kv_heads=2):
    plain = toy_model(attention="block_causal" if block else "full", block_size=block)
    torch.manual_seed(1)
    arch = Architecture(**{**vars(plain.arch), "next_token": next_token, "kv_heads": kv_heads})
    model = Transformer(arch, plain.spec).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


@pytest.mark.parametrize("span", [1, 4, 128])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("next_token", [False, True])
@pytest.mark.parametrize("block", [None, 1, 3, 4, 16])
def test_states_and_gradients_of_the_dense_pass(block, next_token, recompute, span, monkeypatch):
    if block is None and span != 128:
        pytest.skip("full attention has no spans")
    monkeypatch.setattr(pair, "_SPAN", span)
    model = model_of(block, next_token, kv_heads=1)
    model.recompute = recompute
    shown_NT, lengths_N, read_NT, clean_NT = rows(model)
    clean_NT = clean_NT if block else None
    found = model.states(shown_NT, lengths_N, read_NT, clean_NT=clean_NT)
    wanted = torch.cat(
        [
            dense(model, shown_NT[row], None if clean_NT is None else clean_NT[row], length, read_NT[row])
            for row, length in enumerate(LENGTHS)
        ]
    )
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = [weight for name, weight in model.named_parameters() if "unembed" not in name]
    way = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for one, other in zip(*(torch.autograd.grad((x * way).sum(), weights) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_only_what_is_needed_is_held():
    _, _, read_NT, _ = rows(model_of(3, False))
    layout = lay_out(LENGTHS, read_NT, block_size=3, next_token=False, device=torch.device("cpu"))
    held = [(group.rows, group.pair.clean, group.pair.start, group.pair.stop) for group in layout.groups]
    # tokens 3 to 8 of the rows of nine lie in blocks 1 and 2: six clean tokens come before the last of them
    assert (2, 6, 3, 9) in held and (1, 0, 0, 1) in held
    assert len(layout.source_M) == sum(rows * (clean + stop - start) for rows, clean, start, stop in held)
    full = lay_out(LENGTHS, read_NT, block_size=None, next_token=False, device=torch.device("cpu"))
    assert len(full.source_M) == sum(LENGTHS) and {group.rows for group in full.groups} == {1, 2}


def test_recomputing_keeps_only_what_enters_a_layer():
    model = model_of(3, False)
    whole = kept_bytes(model, 12)
    model.recompute = True
    assert kept_bytes(model, 12) < whole / 3
