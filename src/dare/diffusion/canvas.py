"""Uniform corruption of one canvas: a block of answer tokens, some of them replaced by random words of the vocabulary.

C counts the positions of a canvas. There is no mask token, so a noised token does not show that it is one.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dare.diffusion.noise import key, uniform
from dare.diffusion.views import MIN_RATE
from dare.types import Rows, Sequences


@dataclass(frozen=True)
class Canvas(Rows):
    """One block of every answer. ``start_B`` its first position in the row; ``clean_BC`` its tokens; ``noised_BC`` the
    same after corruption; ``rate_B`` the probability t with which each token was replaced.
    """

    start_B: Tensor
    clean_BC: Tensor
    noised_BC: Tensor
    rate_B: Tensor


def whole_canvases(seqs: Sequences, length: int, eos_id: int) -> Sequences:
    """Continue every answer with EOS, as answer tokens, to the end of its last canvas of ``length`` tokens.

    The sampler fills whole canvases, so what follows an answer must be learnt.
    """
    answer_B = seqs.response_BT.sum(1)
    prompt_B1 = (seqs.lengths_B - answer_B)[:, None]
    ends_B = prompt_B1[:, 0] + -(-answer_B.clamp_min(1) // length) * length
    position_T = torch.arange(int(ends_B.max()), device=ends_B.device)
    ids_BT = F.pad(seqs.ids_BT, (0, len(position_T) - seqs.ids_BT.shape[1]))
    before_end_BT = position_T < ends_B[:, None]
    ids_BT = ids_BT.masked_fill(before_end_BT & (position_T >= seqs.lengths_B[:, None]), eos_id)
    return Sequences(ids_BT, before_end_BT & (position_T >= prompt_B1), ends_B)


def noised_canvas(seqs: Sequences, key_B: Tensor, length: int, vocab_size: int) -> Canvas:
    """Choose one canvas of each answer, its rate t ~ U(MIN_RATE, 1), and the tokens that replace others at that rate.

    ``seqs`` hold whole canvases, counted from the first answer token. A row's draws depend on its key alone.
    """
    answer_B = seqs.response_BT.sum(1)
    block_B = (uniform(key(key_B, "canvas"), 1)[:, 0] * (answer_B // length)).long()
    start_B = seqs.lengths_B - answer_B + block_B * length
    clean_BC = seqs.ids_BT.gather(1, start_B[:, None] + torch.arange(length, device=start_B.device))
    rate_B1 = MIN_RATE + (1 - MIN_RATE) * uniform(key(key_B, "rate"), 1)
    replaced_BC = uniform(key(key_B, "replace"), length) < rate_B1
    word_BC = (uniform(key(key_B, "word"), length) * vocab_size).long()
    return Canvas(start_B, clean_BC, torch.where(replaced_BC, word_BC, clean_BC), rate_B1[:, 0])
