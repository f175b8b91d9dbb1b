import pytest
import torch

from dare.models.attention import block_causal_mask, full_mask

SIZES = [(n, block) for n in range(1, 13) for block in range(1, n + 1)]


def _valid(n):
    lengths_B = torch.tensor(sorted({n, (n + 1) // 2, 1}))
    return torch.arange(n) < lengths_B[:, None]


def _brute_force(sees, valid_NT):
    """sees(q, k) and a valid key; a padded query also sees itself so that its softmax is finite."""
    ids, rows = range(valid_NT.shape[1]), valid_NT.tolist()
    return torch.tensor([[[(sees(q, k) and valid[k]) or q == k for k in ids] for q in ids] for valid in rows])


@pytest.mark.parametrize(("n", "block"), SIZES)
def test_block_causal_mask(n, block):
    def sees(q, k):
        return k // block <= q // block

    for valid_NT in (_valid(n), torch.ones(1, n, dtype=torch.bool)):
        assert torch.equal(block_causal_mask(valid_NT, block)[:, 0], _brute_force(sees, valid_NT))


@pytest.mark.parametrize("n", range(1, 13))
def test_full_mask_hides_padding_and_nothing_else(n):
    valid_NT = _valid(n)
    mask = full_mask(valid_NT)
    if n > 1:
        assert torch.equal(mask.expand(-1, 1, n, n)[:, 0], valid_NT[:, None, :].expand(-1, n, -1))
    assert full_mask(torch.ones(2, n, dtype=torch.bool)) is None


def test_one_block_is_full_attention_and_unit_blocks_are_causal():
    valid_NT = torch.ones(1, 6, dtype=torch.bool)
    assert block_causal_mask(valid_NT, 6).all()
    assert torch.equal(block_causal_mask(valid_NT, 1)[0, 0], torch.ones(6, 6).tril().bool())
