import pytest
import torch

from dare.diffusion.likelihood import elbo, score_views
from dare.diffusion.trajectory import left_to_right
from rows import UNEQUAL, pack
from toy import toy_model


@pytest.mark.parametrize("kind", [{}, {"attention": "block_causal", "block_size": 2}], ids=["full", "block"])
def test_the_sum_over_views_is_the_chain_rule(kind):
    model = toy_model(**kind)
    seqs = pack(UNEQUAL, model.spec.pad_id)
    views = left_to_right(seqs, seqs.response_BT, block_size=model.spec.block_size)
    found_B = elbo(score_views(model, seqs, views).logp_BKT, views)
    if model.spec.block_size:
        assert views.masked_BKT.shape[1] == model.spec.block_size
    for row, (prompt, answer) in enumerate(UNEQUAL):
        total = 0.0
        for place, token in enumerate(answer):
            text = torch.tensor([[*prompt, *answer[:place], *[model.spec.mask_id] * (len(answer) - place)]])
            state = model.hidden(text, torch.tensor([text.shape[1]]))[0, len(prompt) + place]
            total += model.head(state[None]).log_softmax(-1)[0, token].item()
        assert found_B[row].item() == pytest.approx(total, rel=1e-10)
