"""The one denoising loop: rollout, evaluation and the terminal all decode here."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.decoding.select import RULES, commit, propose
from dare.diffusion.noise import key, uniform
from dare.models.base import DiffusionLM, ModelSpec
from dare.types import Rollouts, Sequences, concatenate, pack


@torch.no_grad()
def denoise(
    model: DiffusionLM, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor, group_B: Tensor
) -> Rollouts:
    """Decode ``decoding.max_new_tokens`` positions after each prompt, block by block.

    Every pass fills at least one position of each unfinished row, so the loop ends. A row's result depends on its
    prompt and its key alone: not on the other rows, nor on their padding.
    """
    state = _State(model.spec, prompts, decoding, key_B)
    for block in range(int(state.block_BT.max()) + 1):
        for quota_B in state.quotas(block):
            candidates_BT = state.candidates(block)
            if not bool(candidates_BT.any()):
                break
            _step(model, state, candidates_BT, quota_B)
        state.finish_rows_with_eos()
    return state.rollouts(group_B)


def denoise_in_batches(
    model: DiffusionLM,
    prompts: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    key_B: Tensor,
    group_B: Tensor,
    rows: int,
) -> Rollouts:
    """``denoise``, at most ``rows`` rows at a time; the result does not depend on their number."""
    parts = []
    for start in range(0, len(prompts), rows):
        some = slice(start, start + rows)
        parts.append(denoise(model, prompts[some], decoding, key_B[some], group_B[some]))
    return concatenate(parts, model.spec.pad_id)


def _step(model: DiffusionLM, state: "_State", candidates_BT: Tensor, quota_B: Tensor) -> None:
    """One forward pass over the rows with candidates; fill the positions the rule commits."""
    decoding, rows = state.decoding, candidates_BT.any(1)
    candidates_NT = candidates_BT[rows]
    ids_NT, lengths_N = state.ids_BT[rows], state.lengths_B[rows]
    if model.spec.attention == "block_causal":
        # later blocks cannot be seen, so they need not be computed
        width = (int(candidates_NT.any(0).nonzero().max()) // state.block_size + 1) * state.block_size
        ids_NT, candidates_NT, lengths_N = ids_NT[:, :width], candidates_NT[:, :width], lengths_N.clamp_max(width)
    noise_NT = uniform(key(state.key_B[rows], "token", state.forwards_B[rows]), ids_NT.shape[1])
    order_NT = uniform(key(state.key_B[rows], "order", state.forwards_B[rows]), ids_NT.shape[1])
    logits_MV = model.head(model.hidden(ids_NT, lengths_N)[candidates_NT]).float()
    logits_MV[:, model.spec.mask_id] = -torch.inf  # a committed mask would never be filled again
    token_M, logp_MV = propose(logits_MV, noise_NT[candidates_NT], decoding.temperature)
    confidence_M = RULES[decoding.rule](logp_MV, token_M, order_NT[candidates_NT])
    confidence_NT = torch.zeros(ids_NT.shape, device=ids_NT.device).masked_scatter(candidates_NT, confidence_M)
    chosen_NT = commit(confidence_NT, candidates_NT, quota_B[rows], decoding.threshold)
    state.fill(rows, chosen_NT, token_M[chosen_NT[candidates_NT]])


class _State:
    """The canvas of a batch and what has been decided on it."""

    def __init__(self, spec: ModelSpec, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor):
        self.spec, self.decoding, self.key_B = spec, decoding, key_B
        prompt_lengths = [len(prompt) for prompt in prompts]
        canvas = [spec.mask_id] * decoding.max_new_tokens
        seqs = pack([[*prompt, *canvas] for prompt in prompts], prompt_lengths, spec.pad_id, key_B.device)
        self.ids_BT, self.response_BT, self.lengths_B = seqs.ids_BT, seqs.response_BT, seqs.lengths_B
        prompt_B = self.lengths_B - decoding.max_new_tokens
        position_T = torch.arange(self.ids_BT.shape[1], device=key_B.device)
        # a block-causal model counts blocks from the first prompt token, a masked one from the first answer token
        block_causal = spec.attention == "block_causal"
        offset_BT = position_T.expand_as(self.ids_BT) if block_causal else position_T - prompt_B[:, None]
        self.block_size = (spec.block_size if block_causal else decoding.block_size) or decoding.max_new_tokens
        self.block_BT = torch.where(self.response_BT, offset_BT // self.block_size, -1)
        self.masked_BT = self.response_BT.clone()
        self.step_BT = torch.full_like(self.ids_BT, -1)
        self.forwards_B = torch.zeros_like(prompt_B)
        self.finished_B = torch.zeros_like(prompt_B, dtype=torch.bool)

    def candidates(self, block: int) -> Tensor:
        """Masked positions of one block in the rows that have not ended."""
        return self.masked_BT & (self.block_BT == block) & ~self.finished_B[:, None]

    def quotas(self, block: int) -> list[Tensor]:
        """Tokens each row commits at each step of a block: even, the remainder first, never an empty step."""
        masked_B = self.candidates(block).sum(1)
        if self.decoding.threshold is not None:
            return [torch.ones_like(masked_B)] * int(masked_B.max())
        steps_B = masked_B.clamp(1, self.decoding.steps_for(self.block_size))
        share_B, extra_B = masked_B // steps_B, masked_B % steps_B
        return [(share_B + (step < extra_B)) * (step < steps_B) for step in range(int(steps_B.max()))]

    def fill(self, rows: Tensor, chosen_NT: Tensor, token_M: Tensor) -> None:
        """Commit tokens at the chosen positions of the selected rows."""
        row_M, column_M = chosen_NT.nonzero(as_tuple=True)
        row_M = rows.nonzero()[:, 0][row_M]
        self.ids_BT[row_M, column_M] = token_M
        self.step_BT[row_M, column_M] = self.forwards_B[row_M]
        self.masked_BT[row_M, column_M] = False
        self.forwards_B[rows] += 1

    def finish_rows_with_eos(self) -> None:
        """Stop rows that have ended; the blocks they leave out are filled with EOS, as in training."""
        if self.decoding.stop_at_eos:
            self.finished_B |= (self.is_eos() & self.response_BT).any(1)
            rest_BT = self.masked_BT & self.finished_B[:, None]
            self.ids_BT[rest_BT] = self.spec.eos_ids[0]
            self.masked_BT &= ~rest_BT

    def is_eos(self) -> Tensor:
        """Positions that hold any of the model's end tokens."""
        return torch.isin(self.ids_BT, torch.tensor(self.spec.eos_ids, device=self.ids_BT.device))

    def rollouts(self, group_B: Tensor) -> Rollouts:
        """Freeze the canvas into a record."""
        eos_BT = (self.is_eos() & self.response_BT).long()
        counted_BT = self.response_BT & (eos_BT.cumsum(1) - eos_BT == 0)
        seqs = Sequences(self.ids_BT, self.response_BT, self.lengths_B)
        return Rollouts(seqs, counted_BT, self.step_BT, group_B, self.key_B, self.forwards_B)
