import pytest
import torch
import torch.nn.functional as F

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from rows import keys
from toy import toy_model


class Fixed:
    """The same logits at every position whatever the input."""

    def __init__(self, logits_TV):
        self.spec = toy_model(vocab_size=logits_TV.shape[1]).spec
        self.logits_TV = logits_TV

    def hidden(self, ids_NT, lengths_N):
        return self.logits_TV[: ids_NT.shape[1]].expand(len(ids_NT), -1, -1)

    def head(self, hidden_MD):
        return hidden_MD.clone()


def _greedy(model, prompt, length, block_size, steps):
    """Low-confidence decoding of one row, as the paper words it; no batch, no padding, no early exit."""
    spec = model.spec
    ids = [*prompt, *[spec.mask_id] * length]
    start = len(prompt) if spec.attention == "full" else 0
    size = block_size if spec.attention == "full" else spec.block_size
    order = []
    for first in range(start, len(ids), size):
        block = [p for p in range(first, min(first + size, len(ids))) if p >= len(prompt)]
        # block-causal families share the steps out over the whole block, whatever the prompt takes of it
        shared = len(block) if spec.attention == "full" else size
        budget = min(shared, max(1, -(-steps * size // length)))
        for step in range(budget if block else 0):
            quota = shared // budget + (step < shared % budget)
            if not any(ids[p] == spec.mask_id for p in block):
                break
            with torch.no_grad():
                logits_TV = model.head(model.hidden(torch.tensor([ids]), torch.tensor([len(ids)])))[0]
            logits_TV[:, spec.mask_id] = -torch.inf
            confidence, token = torch.softmax(logits_TV, -1).max(-1)
            masked = sorted((p for p in block if ids[p] == spec.mask_id), key=lambda p: -float(confidence[p]))
            for position in masked[:quota]:
                ids[position] = int(token[position])
            order.append(sorted(masked[:quota]))
    return ids, order


@pytest.mark.parametrize("attention", ["full", "block_causal"])
@pytest.mark.parametrize("steps", [3, 6, 11])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_low_confidence_equals_the_plain_loop(attention, steps, seed):
    size = 4 if attention == "block_causal" else None
    model = toy_model(vocab_size=12, attention=attention, block_size=size, seed=seed)
    prompts, length = [[1], [0, 2, 1, 3, 1, 2], [3, 3, 0]], 11
    decoding = DecodingConfig(max_new_tokens=length, block_size=4, steps=steps, stop_at_eos=False)
    rollouts = denoise(model, prompts, decoding, keys(3), keys(3))
    for row, prompt in enumerate(prompts):
        ids, order = _greedy(model, prompt, length, 4, steps)
        assert rollouts.seqs.ids_BT[row, : len(ids)].tolist() == ids
        found = [(rollouts.unmask_step_BT[row] == s).nonzero()[:, 0].tolist() for s in range(len(order))]
        assert found == order


@pytest.mark.parametrize("rule", ["low_confidence", "random", "entropy"])
def test_the_mask_is_never_committed(rule):
    logits_TV = torch.zeros(8, 7)
    logits_TV[:, 6] = 100.0
    for temperature in (0.0, 1.0):
        decoding = DecodingConfig(max_new_tokens=6, rule=rule, temperature=temperature, stop_at_eos=False)
        rollouts = denoise(Fixed(logits_TV), [[0, 1]] * 50, decoding, keys(50), keys(50))
        assert not (rollouts.seqs.ids_BT == 6).any()


def test_decoding_stops_at_the_first_end():
    text = torch.tensor([0, 1, 3, 2, 1, 1, 4, 1, 0, 1])  # ids 0-3 are words, 4 is EOS
    model = Fixed(F.one_hot(text, 7) * 30.0)
    for stop, forwards, tail in [(True, 6, [4, 4]), (False, 8, [0, 1])]:
        decoding = DecodingConfig(max_new_tokens=8, block_size=3, stop_at_eos=stop)
        rollouts = denoise(model, [[0, 4]], decoding, keys(1), keys(1))
        assert rollouts.forwards_B.tolist() == [forwards]
        assert rollouts.seqs.ids_BT[0, 8:].tolist() == tail
        assert rollouts.seqs.ids_BT[0, 2:7].tolist() == [3, 2, 1, 1, 4]
        assert rollouts.counted_BT[0].tolist() == [False] * 2 + [True] * 5 + [False] * 3
        assert (rollouts.unmask_step_BT[0, 8:] == -1).all() == stop
