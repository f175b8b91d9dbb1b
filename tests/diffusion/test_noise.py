import torch

from dare.diffusion.noise import key, mix, uniform

GAMMA = 0x9E3779B97F4A7C15


def _chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


def _plausible(statistic, degrees):
    return statistic < degrees + 5 * (2 * degrees) ** 0.5


def _signed(value):
    return (value + 2**63) % 2**64 - 2**63


def test_mix_is_splitmix64():
    reference = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    counters = torch.tensor([_signed(1234567 + i * GAMMA) for i in range(len(reference))])
    assert [value % 2**64 for value in mix(counters).tolist()] == reference


def test_uniform_is_the_top_53_bits_of_the_counter_chain():
    key_B = key("a", torch.arange(3))
    state = mix(mix(key_B[:, None] ^ mix(torch.arange(2)))[..., None] ^ mix(torch.arange(4)))
    expected = [((value % 2**64) >> 11) / 2**53 for value in state.flatten().tolist()]
    assert uniform(key_B, 2, 4).flatten().tolist() == expected


def test_a_longer_row_keeps_its_earlier_draws():
    key_B = key("pad", torch.arange(4))
    assert torch.equal(uniform(key_B, 50)[:, :7], uniform(key_B, 7))
    assert torch.equal(uniform(key_B, 3, 50)[:, :, :7], uniform(key_B, 3, 7))


def test_a_row_draws_the_same_in_any_batch():
    key_B = key("batch", torch.arange(9))
    order = torch.tensor([5, 2, 8])
    assert torch.equal(uniform(key_B, 2, 6)[order], uniform(key_B[order], 2, 6))
    assert torch.equal(uniform(key_B, 6)[4:5], uniform(key("batch", 4)[None], 6))


def test_key_folds_every_part_and_its_place():
    rows = torch.arange(3)
    distinct = [key(1, 2), key(2, 1), key(1, 2, 0), key("rate"), key("mask"), key(-1), *key("rate", rows)]
    assert len({int(value) for value in distinct}) == len(distinct)
    assert torch.equal(key(7, "x", rows), torch.stack([key(7, "x", int(row)) for row in rows]))


def test_draws_are_uniform():
    draws_N = uniform(key("uniform", torch.arange(200)), 100).flatten()
    n = len(draws_N)
    assert _plausible(_chi_square(torch.histc(draws_N, 64, 0, 1), n / 64), 63)
    rank_N = torch.arange(n, dtype=torch.float64)
    sorted_N = draws_N.sort().values
    distance = torch.maximum(sorted_N - rank_N / n, (rank_N + 1) / n - sorted_N).max()
    assert distance < 1.95 / n**0.5  # Kolmogorov-Smirnov, one in a thousand


def test_neighbouring_keys_names_and_positions_are_independent():
    rows = torch.arange(2001)
    draws = uniform(key("pairs", rows), 11)
    pairs = {
        "keys": (draws[:-1], draws[1:]),
        "positions": (draws[:, :-1], draws[:, 1:]),
        "names": (uniform(key(rows, "rate"), 11), uniform(key(rows, "mask"), 11)),
        "rate and mask": (uniform(key(rows, "rate"), 1).expand(-1, 11), uniform(key(rows, "mask"), 11)),
    }
    for name, (first, second) in pairs.items():
        cell_N = (first * 8).long().flatten() * 8 + (second * 8).long().flatten()
        counts = torch.bincount(cell_N, minlength=64).double()
        if name == "rate and mask":  # one rate per row: compare with its own marginal
            counts = counts.view(8, 8)
            expected = counts.sum(1, keepdim=True).expand(8, 8) / 8
            assert _plausible(_chi_square(counts, expected), 56), name
        else:
            assert _plausible(_chi_square(counts, cell_N.numel() / 64), 63), name
