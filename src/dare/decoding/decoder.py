"""The one denoising loop, a step at a time: rollout, evaluation, the server and the terminal all decode here."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dare.decoding.canvas import Canvas, Proposed, join, widen
from dare.decoding.config import DecodingConfig
from dare.decoding.propose import Places, propose
from dare.decoding.readers import Reader, Uncached, reader_for
from dare.decoding.schedule import quotas
from dare.decoding.select import choose, doubtful
from dare.errors import DareError
from dare.models.base import DiffusionLM
from dare.models.packed import packed

_LOGITS = 2**24
"""Logits held at once: positions meet the vocabulary in parts of at most this many numbers."""

Ended = Callable[[Sequence[int]], bool]


class Snapshot(NamedTuple):
    """The live rows before a pass: their numbers, the passes they have had, and a copy of their ids."""

    row_N: Tensor
    forwards_N: Tensor
    ids_NT: Tensor


class Prediction(NamedTuple):
    """What a pass made of the live rows: their numbers, the passes before it, the ids with every mask filled by its
    proposal, and the highest confidence that each response token ever had, this pass included.
    """

    row_N: Tensor
    forwards_N: Tensor
    ids_NT: Tensor
    confidence_NT: Tensor


class Decoder:
    """Rows on their way from masks to text; rows join and leave between steps.

    ``slots`` rows of at most ``width`` positions fit at once. A row's result depends on its own text and key and the
    settings alone: not on its company, its slot or its padding. Every pass fills at least one position of each row in
    it, so every row ends. ``ended`` looks at the response after each block and may stop the row. With ``predictions``
    every pass proposes for all masks of a row, not only its block's, and leaves them in ``predicted``.
    """

    def __init__(
        self,
        model: DiffusionLM,
        decoding: DecodingConfig,
        slots: int,
        width: int,
        ended: Ended | None = None,
        predictions: bool = False,
    ):
        self.model: DiffusionLM = packed(model)
        self.decoding, self.slots, self.ended, self.predictions = decoding, slots, ended, predictions
        self.predicted: Prediction | None = None
        size = decoding.block_for(model.spec)
        # whole blocks, and one column that takes what lies beyond a row
        self.width = -(-width // size) * size + 1
        self.reader: Reader = reader_for(self.model, decoding, slots, self.width)
        self.live: Canvas | None = None
        if predictions and not isinstance(self.reader, Uncached):
            raise DareError(f"decoding.cache={decoding.cache} does not read the masks of later blocks; set it to none")

    @property
    def free(self) -> int:
        """Rows that may still join."""
        return self.slots - (0 if self.live is None else len(self.live))

    @property
    def busy(self) -> bool:
        """Whether any row is on its way."""
        return self.free < self.slots

    def snapshot(self) -> Snapshot:
        """What the live rows look like now."""
        assert self.live is not None, "add rows first"
        return Snapshot(self.live.row_N, self.live.forwards_N.clone(), self.live.ids_NT.clone())

    @torch.no_grad()
    def add(self, rows: Canvas) -> None:
        """Let rows join: at most ``free`` of them, each with something to decode."""
        rows = widen(rows, self.width, self.model.spec.pad_id)
        self.reader.admit(rows, self.slots - self.free)
        self.live = rows if self.live is None else join([self.live, rows])

    @torch.no_grad()
    def step(self) -> Canvas:
        """One forward pass for every live row; return the rows that it finished, which leave."""
        live, decoding, spec = self.live, self.decoding, self.model.spec
        assert live is not None, "add rows first"
        open_NT, quota_N = live.open(decoding.edits), self._quota(live)
        masked_NT = open_NT & live.masked_NT
        proposed = self._propose(live, open_NT | live.masked_NT if self.predictions else open_NT, quota_N)
        self.predicted = _predicted(live, proposed) if self.predictions else None
        if decoding.remask == "none":
            live.fill(choose(proposed.confidence_NT, masked_NT, quota_N, decoding), proposed)
        else:
            live.fill(masked_NT, proposed)
            live.reopen(doubtful(live.best_NT, live.open(edits=True), masked_NT.sum(1) - quota_N), spec.mask_id)
        edited_N = self._edit(live, open_NT & ~masked_NT, proposed)
        left_N = live.advance(masked_NT.any(1) | edited_N, decoding.max_post_steps if decoding.edits else 0)
        self._end(live, left_N)
        return self._release(live)

    @torch.no_grad()
    def take(self, rows_N: Tensor) -> Canvas:
        """Finish the given rows as they stand and return them; they leave."""
        assert self.live is not None, "add rows first"
        self.live.end(rows_N, self.model.spec.eos_ids)
        return self._release(self.live)

    def _quota(self, live: Canvas) -> Tensor:
        """Positions each row fills at this step where steps decide; 1 once its schedule has run out.

        As an upper bound it counts what earlier steps left over: no faster than the schedule (Dream's threshold).
        """
        spec, decoding = self.model.spec, self.decoding
        size = decoding.block_for(spec)
        plans = [
            # a block-causal family shares its steps out over the whole block, prompt tokens included (SDAR, LLaDA2)
            quotas(size if spec.block_size else opened, decoding.steps_for(size), decoding.schedule)
            for opened in live.opened_N.tolist()
        ]
        rounds = live.round_N.tolist()
        if decoding.steps_bound == "maximum":
            allowed = [sum(plan[: at + 1]) for plan, at in zip(plans, rounds, strict=True)]
            filled_N = live.opened_N - live.open(edits=False).sum(1)
            return torch.tensor(allowed, device=filled_N.device) - filled_N
        quota = [plan[at] if at < len(plan) else 1 for plan, at in zip(plans, rounds, strict=True)]
        return torch.tensor(quota, device=live.round_N.device)

    def _propose(self, live: Canvas, open_NT: Tensor, quota_N: Tensor) -> Proposed:
        """Proposals for all open positions; the vocabulary meets a part of them at a time."""
        states_MD = self.reader.states(live, open_NT)
        places = self._places(live, open_NT, quota_N)
        size = max(1, _LOGITS // self.model.spec.vocab_size)
        parts = []
        for start in range(0, len(states_MD), size):
            logits_MV = self.model.head(states_MD[start : start + size])
            some = places.select(slice(start, start + size))
            # a confidence needs the digits that half precision lacks
            logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
            parts.append(propose(logits_MV, some, self.decoding, self.model.spec))
        return Proposed(*(_spread(torch.cat(columns), open_NT) for columns in zip(*parts, strict=True)))

    def _places(self, live: Canvas, open_NT: Tensor, quota_N: Tensor) -> Places:
        row_M, column_M = open_NT.nonzero(as_tuple=True)
        seen_MV = self._seen(live)[row_M] if self.decoding.repetition_penalty > 1 else None
        progress_N = self._progress(live, quota_N)
        key_N = live.noise_key(self.decoding.steps or self.decoding.max_new_tokens)
        return Places(column_M, key_N[row_M], live.forwards_N[row_M], progress_N[row_M], seen_MV)

    def _progress(self, live: Canvas, quota_N: Tensor) -> Tensor:
        """How far decoding has come, from 0 at the first step to 1 at the last (EOSER, arXiv 2509.23924)."""
        if self.decoding.schedule == "ascending":
            total_N = live.response_NT.sum(1)
            return ((total_N - live.masked_NT.sum(1) + quota_N) / total_N).clamp_max(1)
        last = (self.decoding.steps or self.decoding.max_new_tokens) - 1
        return (live.forwards_N / max(1, last)).clamp_max(1)

    def _seen(self, live: Canvas) -> Tensor:
        """Tokens that stand in each row."""
        width = live.ids_NT.shape[1]
        valid_NT = torch.arange(width, device=live.ids_NT.device) < live.lengths_N[:, None]
        ids_NT = live.ids_NT.where(valid_NT, self.model.spec.mask_id)
        seen_NV = torch.zeros(len(live), self.model.spec.vocab_size, dtype=torch.bool, device=ids_NT.device)
        return seen_NV.scatter_(1, ids_NT, True)

    def _edit(self, live: Canvas, decided_NT: Tensor, proposed: Proposed) -> Tensor:
        """Replace decided tokens by more probable ones (LLaDA2.1); return the rows in which any was."""
        if self.decoding.edit_threshold is None:
            return torch.zeros_like(live.round_N, dtype=torch.bool)
        sure_NT = proposed.confidence_NT > self.decoding.edit_threshold
        changed_NT = decided_NT & sure_NT & (proposed.token_NT != live.ids_NT)
        live.ids_NT[changed_NT] = proposed.token_NT[changed_NT]
        return changed_NT.any(1)

    def _end(self, live: Canvas, left_N: Tensor) -> None:
        """Stop rows whose answer has ended with the block they left."""
        ends_N = torch.zeros_like(left_N)
        if self.decoding.stop_at_eos:
            ends_N = left_N & live.has_eos(self.model.spec.eos_ids)
        if self.ended is not None:
            for row in (left_N & ~ends_N).nonzero()[:, 0].tolist():
                ends_N[row] = self.ended(live.decided(row))
        live.end(ends_N, self.model.spec.eos_ids)

    def _release(self, live: Canvas) -> Canvas:
        done_N = live.finished_N
        done = live.select(done_N)
        if len(done):
            self.live = live.select(~done_N)
            self.reader.keep(~done_N)
        return done


def _predicted(live: Canvas, proposed: Proposed) -> Prediction:
    now_NT = proposed.confidence_NT.to(live.best_NT.dtype)
    best_NT = torch.where(live.masked_NT, torch.maximum(live.best_NT, now_NT), live.best_NT)
    ids_NT = torch.where(live.masked_NT, proposed.token_NT, live.ids_NT)
    return Prediction(live.row_N, live.forwards_N.clone(), ids_NT, torch.where(live.response_NT, best_NT, 0.0))


def _spread(values_M: Tensor, open_NT: Tensor) -> Tensor:
    return torch.zeros(open_NT.shape, dtype=values_M.dtype, device=open_NT.device).masked_scatter(open_NT, values_M)
