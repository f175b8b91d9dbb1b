from functools import partial

import pytest
import torch

from dare.diffusion.views import block_rate, coupled, fully_masked, random_rate
from rows import UNEQUAL, keys, pack, repeat

KEYS = 4000
SAMPLERS = {
    "random_rate": random_rate,
    "block_rate": partial(block_rate, block_size=3),
    "fully_masked": partial(fully_masked, prompt_rate=0.5),
    "coupled": coupled,
}


def test_coupled_scores_every_token_hidden_with_all_and_once_in_a_context():
    seqs = pack(UNEQUAL, 3, extra=2)
    views = coupled(seqs, keys(len(UNEQUAL)))
    full_BT, chosen_BT, other_BT = views.masked_BKT.unbind(1)
    assert torch.equal(full_BT, seqs.response_BT)
    assert torch.equal(chosen_BT | other_BT, seqs.response_BT) and not (chosen_BT & other_BT).any()
    assert torch.equal(views.scored_BKT, views.masked_BKT)
    rate_BT = views.rate_BKT[:, 1]
    assert ((rate_BT >= 0.2) & (rate_BT <= 0.8)).all() and (rate_BT == rate_BT[:, :1]).all()
    for view, share in enumerate((torch.ones((), dtype=torch.float64), rate_BT, 1 - rate_BT)):
        assert torch.allclose(views.weight_BKT[:, view], views.masked_BKT[:, view] / (2 * share), rtol=1e-5)


def test_fully_masked_hides_the_response_and_a_share_of_the_prompt():
    seqs = repeat(pack([([0] * 9, [0, 1, 1])], 3, extra=2), KEYS)
    views = fully_masked(seqs, keys(KEYS), prompt_rate=0.15)
    masked_NT = views.masked_BKT[:, 0]
    assert masked_NT[:, 9:12].all() and not masked_NT[:, 12:].any()
    count_T = masked_NT[:, :9].sum(0)
    assert ((count_T - 0.15 * KEYS).abs() < 4 * (KEYS * 0.15 * 0.85) ** 0.5).all()
    assert torch.equal(views.weight_BKT[:, 0], seqs.response_BT.double())


@pytest.mark.parametrize("name", SAMPLERS)
def test_views_of_a_row_ignore_company_and_padding(name):
    key_B = keys(len(UNEQUAL))
    together = SAMPLERS[name](pack(UNEQUAL, 3, extra=4), key_B)
    for row, pair in enumerate(UNEQUAL):
        seqs = pack([pair], 3)
        alone, width = SAMPLERS[name](seqs, key_B[row : row + 1]), int(seqs.lengths_B)
        for field in ("masked_BKT", "weight_BKT"):
            assert torch.equal(getattr(together, field)[row, :, :width], getattr(alone, field)[0])
            assert not getattr(together, field)[row, :, width:].any()


@pytest.mark.parametrize("name", SAMPLERS)
def test_only_hidden_response_tokens_are_scored(name):
    seqs = pack(UNEQUAL, 3, extra=2)
    views = SAMPLERS[name](seqs, keys(len(UNEQUAL)))
    assert not (views.scored_BKT & ~views.masked_BKT).any()
    assert not (views.scored_BKT & ~seqs.response_BT[:, None]).any()
    assert not (views.masked_BKT & ~seqs.valid_BT[:, None]).any()
