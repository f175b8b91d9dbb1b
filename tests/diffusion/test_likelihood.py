import pytest
import torch

from dare.diffusion.likelihood import elbo, score_view, score_views, token_sum
from dare.diffusion.views import coupled, fully_masked
from dare.types import Views
from rows import UNEQUAL, keys, one_view, pack
from toy import toy_model


@pytest.fixture
def model():
    return toy_model()


def test_a_view_hides_what_is_masked_and_reads_what_is_scored(model):
    seqs = pack(UNEQUAL, model.spec.pad_id)
    views = fully_masked(seqs, keys(len(UNEQUAL)), prompt_rate=0.5)
    scores = score_views(model, seqs, views)
    hidden_prompts = 0
    for row, (prompt, response) in enumerate(UNEQUAL):
        ids = torch.tensor([*prompt, *response])
        masked_T = views.masked_BKT[row, 0, : len(ids)]
        hidden_prompts += int(masked_T[: len(prompt)].sum())
        noised = torch.where(masked_T, model.spec.mask_id, ids)
        with torch.no_grad():
            p_TV = model.head(model.hidden(noised[None], torch.tensor([len(ids)])))[0].softmax(-1)
        where = slice(len(prompt), len(ids))
        wanted = p_TV[torch.arange(len(ids)), ids].log()[where]
        assert torch.allclose(scores.logp_BKT[row, 0, where], wanted, rtol=0, atol=1e-12)
        assert torch.allclose(scores.entropy_BKT[row, 0, where], -(p_TV * p_TV.log()).sum(-1)[where], atol=1e-12)
    assert hidden_prompts > 2


def test_nothing_is_written_where_a_view_does_not_score(model):
    seqs = pack(UNEQUAL, model.spec.pad_id, extra=2)
    views = coupled(seqs, keys(len(UNEQUAL)))
    scores = score_views(model, seqs, views)
    for values_BKT in (scores.logp_BKT, scores.entropy_BKT):
        assert torch.equal(values_BKT != 0, views.scored_BKT)


def test_half_precision_logits_are_widened_before_the_softmax(model):
    model = model.to(torch.bfloat16)
    seqs = pack(UNEQUAL, model.spec.pad_id)
    logp_BT, entropy_BT, _ = score_view(model, seqs, one_view(seqs.response_BT), 0, entropy=True)
    assert logp_BT.dtype == entropy_BT.dtype == torch.float32
    masked_BT = torch.where(seqs.response_BT, model.spec.mask_id, seqs.ids_BT)
    states_MD = model.states(masked_BT, seqs.lengths_B, seqs.response_BT)
    logp_MV = model.head(states_MD).float().log_softmax(-1)
    wanted_M = logp_MV.gather(1, seqs.ids_BT[seqs.response_BT][:, None])[:, 0]
    torch.testing.assert_close(logp_BT[seqs.response_BT], wanted_M, rtol=1e-6, atol=1e-6)


def test_reductions_by_hand():
    logp_BKT = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]]])
    weight_BKT = torch.tensor([[[1.0, 0.5], [0.0, 2.0]]])
    views = Views(weight_BKT != 0, weight_BKT, torch.ones(1, 2, 2))
    assert token_sum(logp_BKT, views).tolist() == [[-1.0, -9.0]]
    assert elbo(logp_BKT, views).tolist() == [-10.0]
