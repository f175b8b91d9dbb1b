from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from dare.diffusion.likelihood import elbo, score_view, score_views
from dare.diffusion.views import MIN_RATE, block_rate
from rows import keys, one_view, pack, repeat
from toy import toy_model

PROMPT, RESPONSE, BLOCK, KEYS = [1], [0, 1, 1, 0], 2, 4000


def _block_logp(model, ids, block, hidden):
    """log p of the ``hidden`` positions of one block by a plain forward: clean blocks before it, nothing after it."""
    noised = torch.tensor(ids[: (block + 1) * BLOCK])[None]
    noised[0, hidden] = model.spec.mask_id
    with torch.no_grad():
        states_TD = model.hidden(noised, torch.tensor([noised.shape[1]]))[0, hidden]
        logp_MV = torch.log_softmax(model.head(states_TD), -1)
    return logp_MV.gather(1, torch.tensor(ids)[hidden][:, None])[:, 0]


def _response_blocks():
    positions = range(len(PROMPT), len(PROMPT) + len(RESPONSE))
    blocks: dict[int, list[int]] = {}
    for position in positions:
        blocks.setdefault(position // BLOCK, []).append(position)
    return blocks


def test_block_rate_averages_to_the_blockwise_elbo():
    model, ids = toy_model(attention="block_causal", block_size=BLOCK), PROMPT + RESPONSE
    node, weight = np.polynomial.legendre.leggauss(16)
    t = MIN_RATE + (1 - MIN_RATE) * (node + 1) / 2
    exact = 0.0
    for block, positions in _response_blocks().items():
        for bits in product([0, 1], repeat=len(positions)):
            hidden = [p for p, bit in zip(positions, bits, strict=True) if bit]
            if hidden:
                share = (weight / 2 * t ** (len(hidden) - 1) * (1 - t) ** (len(positions) - len(hidden))).sum()
                exact += share * float(_block_logp(model, ids, block, hidden).sum())
    seqs = repeat(pack([(PROMPT, RESPONSE)], model.spec.pad_id), KEYS)
    views = block_rate(seqs, keys(KEYS), block_size=BLOCK)
    estimate_N = elbo(score_views(model, seqs, views).logp_BKT, views)
    error = float(estimate_N.std()) / KEYS**0.5
    assert abs(float(estimate_N.mean()) - exact) < 4 * error
    assert error < 0.05 * abs(exact)


def test_every_block_draws_its_own_rate():
    seqs = repeat(pack([(PROMPT, RESPONSE)], 3), KEYS)
    rate_NT = block_rate(seqs, keys(KEYS), block_size=BLOCK).rate_BKT[:, 0]
    assert torch.equal(rate_NT[:, 0], rate_NT[:, 1]) and torch.equal(rate_NT[:, 2], rate_NT[:, 3])
    correlation = torch.corrcoef(rate_NT[:, [0, 2, 4]].T)
    assert (correlation - torch.eye(3)).abs().max() < 4 / KEYS**0.5


@pytest.mark.parametrize("seed", range(3))
def test_one_composite_pass_equals_a_pass_per_block(seed):
    model, ids = toy_model(attention="block_causal", block_size=BLOCK, seed=seed), PROMPT + RESPONSE
    seqs = pack([(PROMPT, RESPONSE), (PROMPT * 3, RESPONSE)], model.spec.pad_id)
    views = partial(block_rate, block_size=BLOCK)(seqs, keys(2, f"composite{seed}"))
    masked_BT = views.masked_BKT[:, 0].clone()
    masked_BT[0, [1, 2]] = True
    with torch.no_grad():
        logp_BT = score_view(model, seqs, one_view(masked_BT), 0).logp
    for block in _response_blocks():
        hidden = [p for p in range(block * BLOCK, min(len(ids), (block + 1) * BLOCK)) if masked_BT[0, p]]
        if hidden:
            assert torch.allclose(logp_BT[0, hidden], _block_logp(model, ids, block, hidden), rtol=0, atol=1e-12)
