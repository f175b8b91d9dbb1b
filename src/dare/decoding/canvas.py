"""The rows being decoded, and what has been decided on each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.models.base import ModelSpec
from dare.types import Rows, Sequences, pack

_NO_BLOCK = 2**30


class Proposed(NamedTuple):
    """What a step proposes for open positions, zero elsewhere: see ``propose``."""

    token_NT: Tensor
    confidence_NT: Tensor
    logp_NT: Tensor


@dataclass(frozen=True)
class Canvas(Rows):
    """N rows, each on its own way; the tensors are written in place.

    ``ids_NT`` prompt, response and padding; ``response_NT`` the positions to decode, ``masked_NT`` those still open;
    ``block_NT`` their block (-1 outside the response); ``first_N`` where a row's block 0 begins. What is known of a
    decided position: ``step_NT`` the forward pass that filled it, ``logp_NT`` its log-probability then, ``best_NT`` the
    highest confidence it ever had. Where a row stands: ``current_N`` its block, ``round_N`` steps taken in it,
    ``opened_N`` masks it began with, ``post_N`` steps after its last mask, ``forwards_N`` passes in all. ``key_N`` its
    noise key, or ``[N, L]`` keys for L equal spans of its passes; ``row_N`` its number in the call.
    """

    ids_NT: Tensor
    lengths_N: Tensor
    response_NT: Tensor
    masked_NT: Tensor
    block_NT: Tensor
    first_N: Tensor
    step_NT: Tensor
    logp_NT: Tensor
    best_NT: Tensor
    current_N: Tensor
    round_N: Tensor
    opened_N: Tensor
    post_N: Tensor
    forwards_N: Tensor
    key_N: Tensor
    row_N: Tensor

    def __len__(self) -> int:
        return len(self.lengths_N)

    def open(self, edits: bool) -> Tensor:
        """Positions of each row's block whose token may be set now: masks, with ``edits`` also decided ones."""
        return (self.response_NT if edits else self.masked_NT) & (self.block_NT == self.current_N[:, None])

    def noise_key(self, passes: int) -> Tensor:
        """The key ``[N]`` of each row's next pass, of ``passes`` in all."""
        if self.key_N.dim() == 1:
            return self.key_N
        spans = self.key_N.shape[1]
        span_N = (self.forwards_N * spans // passes).clamp_max(spans - 1)
        return self.key_N.gather(1, span_N[:, None])[:, 0]

    def fill(self, chosen_NT: Tensor, proposed: Proposed) -> None:
        """Decide the chosen positions."""
        self.ids_NT[chosen_NT] = proposed.token_NT[chosen_NT]
        self.logp_NT[chosen_NT] = proposed.logp_NT[chosen_NT].to(self.logp_NT.dtype)
        surer_NT = torch.maximum(self.best_NT, proposed.confidence_NT.to(self.best_NT.dtype))
        self.best_NT[chosen_NT] = surer_NT[chosen_NT]
        self.step_NT[chosen_NT] = self.forwards_N[:, None].expand_as(chosen_NT)[chosen_NT]
        self.masked_NT[chosen_NT] = False

    def reopen(self, chosen_NT: Tensor, mask_id: int) -> None:
        """Take decided positions back."""
        self.ids_NT[chosen_NT] = mask_id
        self.step_NT[chosen_NT] = -1
        self.masked_NT[chosen_NT] = True

    def advance(self, moved_N: Tensor, patience: int) -> Tensor:
        """Count the pass and send rows whose block is decided to their next one; return which rows left a block.

        A decided block in which this pass still ``moved`` something is read again, at most ``patience`` times.
        """
        self.forwards_N.add_(1)
        self.round_N.add_(1)
        masked_N = self.open(edits=False).any(1)
        again_N = ~masked_N & moved_N & (self.post_N < patience)
        self.post_N.add_(again_N)
        left_N = ~(masked_N | again_N)
        self.enter(left_N)
        return left_N

    def enter(self, rows_N: Tensor) -> None:
        """Put the given rows at the start of their first block that has a mask; rows without one are finished."""
        following_N = self.block_NT.masked_fill(~self.masked_NT, _NO_BLOCK).amin(1)
        self.current_N[rows_N] = following_N[rows_N]
        self.round_N[rows_N] = 0
        self.post_N[rows_N] = 0
        self.opened_N[rows_N] = self.open(edits=False).sum(1)[rows_N]

    @property
    def finished_N(self) -> Tensor:
        """Rows with nothing left to decide."""
        return self.current_N == _NO_BLOCK

    def end(self, rows_N: Tensor, eos_ids: Sequence[int]) -> None:
        """Finish the given rows; what they leave open is filled with EOS, as in training."""
        rest_NT = self.masked_NT & rows_N[:, None]
        self.ids_NT[rest_NT] = eos_ids[0]
        self.masked_NT[rest_NT] = False
        self.current_N[rows_N] = _NO_BLOCK

    def decided(self, row: int) -> list[int]:
        """The row's response up to its first mask."""
        mine_T = self.response_NT[row]
        open_T = self.masked_NT[row][mine_T].long().cumsum(0) > 0
        return self.ids_NT[row][mine_T][~open_T].tolist()

    def has_eos(self, eos_ids: Sequence[int]) -> Tensor:
        """Rows whose response holds any of the end tokens."""
        return Sequences(self.ids_NT, self.response_NT, self.lengths_N).holds(eos_ids).any(1)


def completions(prompts: Sequence[Sequence[int]], length: int, mask_id: int) -> list[list[int]]:
    """Texts that end in ``length`` masks."""
    return [[*prompt, *[mask_id] * length] for prompt in prompts]


def canvas(texts: Sequence[Sequence[int]], decoding: DecodingConfig, spec: ModelSpec, key_B: Tensor) -> Canvas:
    """Lay out texts in which every mask token, wherever it stands, is a position to decode."""
    seqs = pack(texts, [0] * len(texts), spec.pad_id, key_B.device)
    open_BT = (seqs.ids_BT == spec.mask_id) & seqs.valid_BT
    position_T = torch.arange(open_BT.shape[1], device=key_B.device)
    # a block-causal model counts blocks from the first token, a masked one from the first open position
    first_B = torch.where(open_BT.any(1), open_BT.long().argmax(1), seqs.lengths_B)
    if spec.attention == "block_causal":
        first_B = torch.zeros_like(first_B)
    block_BT = (position_T - first_B[:, None]) // decoding.block_for(spec)
    blank_B, blank_BT = torch.zeros_like(first_B), torch.zeros(open_BT.shape, device=key_B.device)
    rows = Canvas(
        ids_NT=seqs.ids_BT,
        lengths_N=seqs.lengths_B,
        response_NT=open_BT,
        masked_NT=open_BT.clone(),
        block_NT=torch.where(open_BT, block_BT, -1),
        first_N=first_B,
        step_NT=torch.full_like(seqs.ids_BT, -1),
        logp_NT=blank_BT,
        best_NT=torch.full_like(blank_BT, -torch.inf),
        row_N=torch.arange(len(first_B), device=key_B.device),
        key_N=key_B,
        **{name: blank_B.clone() for name in ("current_N", "round_N", "opened_N", "post_N", "forwards_N")},
    )
    rows.enter(torch.ones_like(blank_B, dtype=torch.bool))
    return rows


def widen(rows: Canvas, width: int, pad_id: int) -> Canvas:
    """The same rows with columns of padding up to ``width``."""
    fill = {"ids_NT": pad_id, "response_NT": False, "masked_NT": False, "logp_NT": 0.0, "best_NT": -torch.inf}
    extra = width - rows.ids_NT.shape[1]
    wide = {
        field.name: F.pad(getattr(rows, field.name), (0, extra), value=fill.get(field.name, -1))
        for field in fields(Canvas)
        if field.name.endswith("NT")
    }
    return replace(rows, **wide)


def join(parts: Sequence[Canvas]) -> Canvas:
    """Stack rows of one width."""
    return Canvas(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Canvas)))
