import torch

from dare.diffusion.views import spread_rate
from rows import keys, pack, repeat


def test_rates_go_in_even_steps_to_one_and_masks_follow_them():
    seqs = repeat(pack([([0], [1] * 20)], pad_id=3), 3000)
    views = [spread_rate(seqs, keys(3000), levels=10, number=number, count=4) for number in range(4)]
    rate_BK = torch.stack([one.rate_BKT[:, 0, 0] for one in views], 1)
    assert (rate_BK[:, 1:] >= rate_BK[:, :-1]).all() and (rate_BK[:, -1] == 1).all()
    assert torch.allclose(rate_BK * 10, (rate_BK * 10).round())
    gap_BK = rate_BK[:, 1:] - rate_BK[:, :-1]
    assert (gap_BK.amax(1) - gap_BK.amin(1)).max() < 0.11  # even, but for rounding to levels
    counts = torch.bincount((rate_BK[:, 0] * 10).round().long(), minlength=10)
    assert (counts - 300).abs().max() < 80
    for one in views:
        masked_B = one.masked_BKT.sum((1, 2)) / 20
        assert abs(float((masked_B - one.rate_BKT[:, 0, 0]).mean())) < 0.01
        assert torch.equal(one.weight_BKT != 0, one.masked_BKT)
