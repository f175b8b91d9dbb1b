import pytest
import torch
import torch.nn.functional as F

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.likelihood import score_view
from dare.diffusion.vocabulary import Reading
from rows import keys, one_view, pack
from toy import toy_model

PROMPT, TARGET = [1, 0], [0, 1, 1, 0, 0, 1, 0]


class CopyModel:
    """Knows a text: the state at position t says the token at t (or, shifted, at t + 1)."""

    def __init__(self, text, shift, attention):
        self.spec = toy_model(attention=attention, block_size=4 if attention == "block_causal" else None).spec
        self.text_T = torch.tensor([*text[shift:], *[0] * shift])

    def hidden(self, ids_NT, lengths_N):
        states_TD = F.one_hot(self.text_T[: ids_NT.shape[1]], self.spec.vocab_size)
        return states_TD.double().expand(len(ids_NT), -1, -1)

    def head(self, hidden_MD):
        return 50 * hidden_MD

    def states(self, shown_NT, lengths_N, read_NT, *, clean_NT=None):
        return self.hidden(shown_NT, lengths_N)[read_NT]

    def read(self, hidden_MD, ids_M, temperature, *, entropy=False):
        return Reading(self.head(hidden_MD).log_softmax(-1).gather(1, ids_M[:, None])[:, 0])


def _loss_and_text(shift, attention):
    model = CopyModel(PROMPT + TARGET, shift, attention)
    seqs = pack([(PROMPT, TARGET)], model.spec.pad_id)
    logp_BT = score_view(model, seqs, one_view(seqs.response_BT), 0).logp
    decoding = DecodingConfig(max_new_tokens=len(TARGET), block_size=3)
    rollouts = denoise(model, [PROMPT], decoding, keys(1), keys(1))
    return -float(logp_BT.sum()), rollouts.seqs.ids_BT[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("attention", ["full", "block_causal"])
def test_the_state_at_t_predicts_the_token_at_t(attention):
    loss, text = _loss_and_text(0, attention)
    assert loss < 1e-12 and text == TARGET
    loss, text = _loss_and_text(1, attention)
    assert loss > 40 and text == [*TARGET[1:], 0]
