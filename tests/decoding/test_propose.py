import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.propose import Places, filtered, propose, sample
from dare.diffusion.noise import key, uniform, uniform_at
from rows import keys
from toy import toy_model


def _places(count, step=0, **given):
    step_M = torch.full((count,), step)
    return Places(torch.arange(count), keys(count, "places"), step_M, torch.zeros(count), **given)


def _propose(logits_MV, **settings):
    spec = toy_model(vocab_size=logits_MV.shape[1]).spec
    return propose(logits_MV.clone(), _places(len(logits_MV)), DecodingConfig(**settings), spec)


@pytest.mark.parametrize("size", [7, 700])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_follow_the_tempered_softmax(temperature, size):
    """Chi-square with 5 standard deviations of room; 700 words are several chunks and a rest."""
    generator = torch.Generator().manual_seed(size)
    logits_V = torch.randn(size, generator=generator) * 1.5
    logits_V[3] = -torch.inf
    count = 20_000
    uniform_M = uniform(key("draw", 1)[None], count)[0]
    decoding = DecodingConfig(temperature=temperature)
    token_M = torch.cat([sample(filtered(logits_V.expand(2000, -1), decoding), u) for u in uniform_M.split(2000)])
    expected = torch.softmax(logits_V.double() / temperature, -1) * count
    counts = torch.bincount(token_M, minlength=size)
    assert counts[3] == 0
    often = expected > 5
    chi = ((counts - expected) ** 2 / expected)[often].sum()
    freedom = float(often.sum())
    assert chi < freedom + 5 * (2 * freedom) ** 0.5


def test_extreme_draws_stay_inside_the_support():
    for size in (4, 256, 300):
        logits_V = torch.full((size,), -torch.inf)
        logits_V[1:3] = 0.0
        uniform_M = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
        assert sample(logits_V.expand(2, -1), uniform_M).tolist() == [1, 2]


def test_one_draw_equals_its_entry_in_the_whole_row():
    key_B = keys(3)
    whole_BT = uniform(key_B, 9)
    row_M, column_M = torch.tensor([0, 2, 1]), torch.tensor([8, 0, 3])
    assert torch.equal(uniform_at(key_B[row_M], column_M), whole_BT[row_M, column_M])


def test_filters_close_what_they_name():
    logits_MV = torch.tensor([[0.5, 0.3, 0.1, 0.06, 0.04]]).log()

    def left(**settings):
        found = filtered(logits_MV, DecodingConfig(temperature=1.0, **settings))
        return found.isfinite()[0].long().tolist()

    assert left() == [1, 1, 1, 1, 1]
    assert left(top_k=2) == [1, 1, 0, 0, 0]
    assert left(top_p=0.7) == [1, 1, 0, 0, 0]
    assert left(top_p=0.85) == [1, 1, 1, 0, 0]
    assert left(min_p=0.15) == [1, 1, 1, 0, 0]
    assert left(top_k=9, top_p=1.0) == [1, 1, 1, 1, 1]


def test_the_log_probability_is_the_trainers():
    """Temperature 1 and the whole vocabulary, the mask token included, whatever was sampled from."""
    logits_MV = torch.randn(6, 9, dtype=torch.float64)
    for settings in ({}, {"temperature": 0.5, "top_k": 3}, {"eos": "never"}):
        token_M, _, logp_M = _propose(logits_MV, **settings)
        assert torch.allclose(logp_M, logits_MV.log_softmax(-1).gather(1, token_M[:, None])[:, 0])


def test_end_tokens_are_free_last_or_never():
    """Every end token, EOS and end of turn alike."""
    spec = toy_model(vocab_size=8).spec
    ends = (4, 5)
    logits_MV = torch.zeros(4, 8)
    logits_MV[:2, 4] = 5.0
    logits_MV[2:, 5] = 5.0
    logits_MV[1, 0] = logits_MV[3, 1] = 6.0

    def read(eos):
        given = type(spec)(**{**spec.__dict__, "eos_ids": ends})
        return propose(logits_MV.clone(), _places(4), DecodingConfig(eos=eos), given)[:2]

    token_M, confidence_M = read("free")
    assert token_M.tolist() == [4, 0, 5, 1]
    assert confidence_M[0] > confidence_M[1]
    token_M, confidence_M = read("last")
    assert token_M.tolist() == [4, 0, 5, 1]
    assert confidence_M[[0, 2]].max() < confidence_M[[1, 3]].min()
    # the text competes as if no end token existed
    without = logits_MV[1].clone()
    without[[4, 5, 7]] = -torch.inf
    assert confidence_M[1] == pytest.approx(float(without.softmax(-1)[0]))
    assert not set(read("never")[0].tolist()) & set(ends)


def test_the_eos_discount_rises_to_one():
    logits_MV = torch.zeros(2, 5)
    logits_MV[:, 2] = 4.0
    spec = toy_model(vocab_size=5).spec
    decoding = DecodingConfig(eos_discount=0.25)
    found = []
    for progress in (0.0, 0.5, 1.0):
        places = Places(torch.arange(2), keys(2), torch.zeros(2, dtype=torch.int64), torch.full((2,), progress))
        found.append(float(propose(logits_MV.clone(), places, decoding, spec)[1][0]))
    plain = float(propose(logits_MV.clone(), places, DecodingConfig(), spec)[1][0])
    assert found == pytest.approx([0.25 * plain, 0.625 * plain, plain])


def test_repetition_makes_a_token_less_likely():
    logits_MV = torch.tensor([[2.0, 1.5, -1.0, 0.0, 0.0, 0.0]])
    seen_MV = torch.tensor([[True, False, True, False, False, False]])
    spec = toy_model(vocab_size=6).spec
    places = _places(1, seen_MV=seen_MV)
    assert propose(logits_MV.clone(), places, DecodingConfig(repetition_penalty=1.2), spec)[0].tolist() == [0]
    assert propose(logits_MV.clone(), places, DecodingConfig(repetition_penalty=2.0), spec)[0].tolist() == [1]
    logits_MV[0, :2] = -5.0
    assert propose(logits_MV.clone(), places, DecodingConfig(repetition_penalty=2.0), spec)[0].tolist() == [3]


def test_order_temperature_samples_the_order_by_confidence():
    """Gumbel noise of scale s ranks two confidences c1, c2 as softmax(c / s) would draw them."""
    logits_MV = torch.zeros(2, 5)
    logits_MV[0, 0], logits_MV[1, 0] = 2.0, 1.0
    plain = propose(logits_MV.clone(), _places(2), DecodingConfig(), toy_model(vocab_size=5).spec)[1]
    spec, wins, count = toy_model(vocab_size=5).spec, 0, 4000
    decoding = DecodingConfig(order_temperature=0.2)
    for part in range(4):
        key_M = keys(count // 4, f"part{part}").repeat_interleave(2)
        column_M, zero_M = torch.arange(2).repeat(count // 4), torch.zeros(count // 2, dtype=torch.int64)
        places = Places(column_M, key_M, zero_M, zero_M.float())
        confidence_M = propose(logits_MV.repeat(count // 4, 1), places, decoding, spec)[1]
        wins += int((confidence_M[::2] > confidence_M[1::2]).sum())
    expected = float(torch.sigmoid((plain[0] - plain[1]) / 0.2))
    assert wins / count == pytest.approx(expected, abs=4 * (expected * (1 - expected) / count) ** 0.5)
