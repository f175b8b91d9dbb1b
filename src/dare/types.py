"""The data every part of DARE exchanges.

Shape legend, used as name suffixes everywhere:

    B  sequences        G  samples per prompt     K  noised views       T  positions
    V  vocabulary       D  hidden width           N  any flattened batch
    M  gathered positions                         U  units a ratio is taken over
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Example:
    """One task row: what the model reads and what the grader needs.

    ``prompt`` is a chat (``role``/``content`` turns), ``answer`` the worked answer of an SFT row or ``None``,
    ``columns`` the dataset's own columns, handed to reward functions by name.
    """

    prompt: tuple[Mapping[str, str], ...]
    columns: Mapping[str, Any]
    answer: str | None = None


class Rows:
    """Mixin for frozen dataclasses of tensors, or of other rows, that share their first dimension."""

    def select(self, index: Tensor | slice) -> Self:
        """Return the rows named by ``index`` (a slice, a boolean mask or row numbers)."""
        return self._each(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Self:
        """Return the same rows on ``device``."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if isinstance(value, Tensor):
                changed[name] = change(value)
            elif isinstance(value, Rows):
                changed[name] = value._each(change)
        return replace(self, **changed)  # type: ignore[type-var]


@dataclass(frozen=True)
class Sequences(Rows):
    """Prompt and response in one row, padded on the right; the only padding convention in DARE.

    ``ids_BT`` token ids; ``response_BT`` True on response positions; ``lengths_B`` valid positions per row
    (prompt + response). Positions at or beyond the length are padding: never attended, never scored.
    """

    ids_BT: Tensor
    response_BT: Tensor
    lengths_B: Tensor

    @property
    def valid_BT(self) -> Tensor:
        """True on prompt and response positions, False on padding."""
        return torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device) < self.lengths_B[:, None]

    def through_eos(self, eos_ids: Iterable[int]) -> Tensor:
        """True on response positions up to and including the first of the end tokens."""
        eos_BT = self.holds(eos_ids).long()
        return self.response_BT & (eos_BT.cumsum(1) - eos_BT == 0)

    def holds(self, ids: Iterable[int]) -> Tensor:
        """Response positions, ``[B, T]``, that hold any of the given tokens."""
        return torch.isin(self.ids_BT, torch.tensor([*ids], device=self.ids_BT.device)) & self.response_BT

    def trim(self) -> "Sequences":
        """Drop the columns that are padding in every row."""
        width = int(self.lengths_B.max())
        return Sequences(self.ids_BT[:, :width], self.response_BT[:, :width], self.lengths_B)


@dataclass(frozen=True)
class Views(Rows):
    """K noised copies of each sequence. Data, drawn once and shared by the old, reference and live policy.

    ``masked_BKT`` positions replaced by the mask token; ``weight_BKT`` the estimator's weight on each token
    log-probability, zero where a position is not scored; ``rate_BKT`` the corruption rate t of each position. The
    weighted sum over all views is the estimate.

    ``loss_weight_BKT`` the weight of a scored token in the loss, where an algorithm asks; ``imitation_BKT`` the weight
    of its cross-entropy, which no ratio enters; ``ids_BKT`` what each view shows and expects, where that is not the
    final text; ``shown_BKT`` what each view shows where it does not mask, if that is not what it expects (wrong tokens
    to be corrected); ``temperature`` divides the logits before a log-probability is read.
    """

    masked_BKT: Tensor
    weight_BKT: Tensor
    rate_BKT: Tensor
    loss_weight_BKT: Tensor | None = None
    imitation_BKT: Tensor | None = None
    ids_BKT: Tensor | None = None
    shown_BKT: Tensor | None = None
    temperature: float = 1.0

    @property
    def scored_BKT(self) -> Tensor:
        """Positions whose log-probability is read."""
        return self.weight_BKT != 0

    def trim(self, width: int) -> Self:
        """Keep the first ``width`` columns."""
        return self._each(lambda tensor: tensor[..., :width])


@dataclass(frozen=True)
class Rollouts(Rows):
    """Decoded responses and the record of how they came about.

    ``seqs`` includes the whole canvas; ``counted_BT`` is True up to and including the first EOS of the response;
    ``unmask_step_BT`` is the forward pass that decided each token last (-1: not decoded), enough to rebuild every
    intermediate state of a decoder that never changes its mind; ``logp_BT`` the token's log-probability at that pass
    (nats; temperature 1, whole vocabulary); ``group_B`` the prompt each row answers; ``key_B`` its noise key;
    ``forwards_B`` model forward passes spent on the row. ``states_BST``, only where tokens may be masked again or
    edited: the ids before each pass S, repeated at the end of shorter rows.

    Only on request, since they take a row's memory S times: ``predictions_BST`` the ids before each pass with every
    mask filled by what the pass proposed, ``confidence_BST`` the highest confidence each response token ever had, the
    pass included. Behind a row's last pass stand its final text and its last confidence.
    """

    seqs: Sequences
    counted_BT: Tensor
    unmask_step_BT: Tensor
    group_B: Tensor
    key_B: Tensor
    forwards_B: Tensor
    logp_BT: Tensor
    states_BST: Tensor | None = None
    predictions_BST: Tensor | None = None
    confidence_BST: Tensor | None = None

    @property
    def length_B(self) -> Tensor:
        """Response tokens up to and including the first EOS."""
        return self.counted_BT.sum(1)


@dataclass(frozen=True)
class Outcome(Rows):
    """Graded rollouts: all that the views and the credit of an algorithm may depend on.

    ``reward_B`` what the policy is trained on; ``progress`` the share of the run's steps already taken;
    ``step_reward_BS`` the rewards of the predictions of every pass S, where they were recorded; ``value_BKT`` what a
    value model expected at each scored token of the first update's views, where there is one.
    """

    rollouts: Rollouts
    reward_B: Tensor
    progress: float = 0.0
    step_reward_BS: Tensor | None = None
    value_BKT: Tensor | None = None


def pack(
    rows: Sequence[Sequence[int]], prompt_lengths: Sequence[int], pad_id: int, device: torch.device | str = "cpu"
) -> Sequences:
    """Right-pad rows of token ids; what follows a row's prompt is its response."""
    lengths_B = torch.tensor([len(row) for row in rows], device=device)
    ids_BT = torch.full((len(rows), int(lengths_B.max())), pad_id, device=device)
    for ids_T, row in zip(ids_BT, rows, strict=True):
        ids_T[: len(row)] = torch.tensor(row)
    position_T = torch.arange(ids_BT.shape[1], device=device)
    prompt_B1 = torch.tensor(prompt_lengths, device=device)[:, None]
    response_BT = (position_T >= prompt_B1) & (position_T < lengths_B[:, None])
    return Sequences(ids_BT, response_BT, lengths_B)
