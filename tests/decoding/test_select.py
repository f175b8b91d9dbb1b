import pytest
import torch

from dare.decoding.select import RULES, commit, propose
from dare.diffusion.noise import key, uniform


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_follow_the_tempered_softmax(temperature):
    logits_V = torch.tensor([0.3, -1.0, 2.0, -torch.inf, 0.0, 1.2, -0.4])
    count = 20_000
    token_M, logp_MV = propose(logits_V.expand(count, -1), uniform(key("draw", 1)[None], count)[0], temperature)
    expected = torch.softmax(logits_V.double() / temperature, -1) * count
    counts = torch.bincount(token_M, minlength=7)
    assert counts[3] == 0
    seen = expected > 0
    assert ((counts - expected) ** 2 / expected)[seen].sum() < 5 + 5 * 10**0.5
    assert torch.allclose(logp_MV[0], torch.log_softmax(logits_V, -1))


def test_extreme_draws_stay_inside_the_support():
    logits_MV = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]] * 2)
    token_M, _ = propose(logits_MV, torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64), 1.0)
    assert token_M.tolist() == [1, 2]


def test_rules_rank_as_named():
    probability_MV = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.2, 0.2], [0.0, 0.0, 1.0]])
    token_M = torch.tensor([1, 0, 2])
    ranked = {
        name: RULES[name](probability_MV.log(), token_M, torch.tensor([0.9, 0.1, 0.5])).tolist() for name in RULES
    }
    assert ranked["low_confidence"] == pytest.approx([0.5, 0.6, 1.0])
    assert ranked["entropy"] == pytest.approx([-0.6931472, -0.9502705, 0.0])
    assert ranked["random"] == pytest.approx([0.9, 0.1, 0.5])


def test_commit_takes_the_quota_or_all_above_the_threshold():
    confidence_BT = torch.tensor([[0.9, 0.2, 0.8, 0.8], [0.1, 0.3, 0.3, 0.9]])
    candidates_BT = torch.tensor([[False, True, True, True], [True, True, True, False]])
    chosen = commit(confidence_BT, candidates_BT, torch.tensor([1, 2]), None)
    assert chosen.tolist() == [[False, False, True, False], [False, True, True, False]]
    chosen = commit(confidence_BT, candidates_BT, torch.tensor([1, 1]), 0.8)
    assert chosen.tolist() == [[False, False, True, True], [False, True, False, False]]
