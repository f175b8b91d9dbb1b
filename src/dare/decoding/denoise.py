"""Decode a queue of texts: rows join as others leave, and come back in the order they were given."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from dare.decoding.canvas import Canvas, canvas, completions, join, widen
from dare.decoding.config import DecodingConfig
from dare.decoding.decoder import Decoder, Ended, Snapshot
from dare.models.base import DiffusionLM
from dare.types import Rollouts, Sequences

Watch = Callable[[Canvas], None]
"""Told every row of each pass, as it stands after it; those with nothing left to decode are ``finished_N``."""


def denoise(
    model: DiffusionLM,
    prompts: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    key_B: Tensor,
    group_B: Tensor,
    **limits: Any,
) -> Rollouts:
    """Decode ``decoding.max_new_tokens`` positions after each prompt; see ``infill``."""
    texts = completions(prompts, decoding.max_new_tokens, model.spec.mask_id)
    return infill(model, texts, decoding, key_B, group_B, **limits)


def infill(
    model: DiffusionLM,
    texts: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    key_B: Tensor,
    group_B: Tensor,
    *,
    rows: int = 64,
    tokens: int = 2**16,
    ended: Ended | None = None,
    watch: Watch | None = None,
) -> Rollouts:
    """Decode the mask tokens of each text, block by block, at most ``rows`` texts at a time.

    ``tokens`` bounds the positions of one pass, rows times the longest text; one row is always let in. A row's result
    depends on its text and its key alone. Long texts come first, so that rows of like length share their passes.
    """
    whole = canvas(texts, decoding, model.spec, key_B)
    waiting = whole.select(~whole.finished_N)
    waiting = waiting.select(waiting.lengths_N.argsort(descending=True, stable=True))
    width = whole.ids_NT.shape[1]
    slots = max(1, min(rows, tokens // width))
    decoder = Decoder(model, decoding, min(slots, len(waiting)), width, ended)
    done = [widen(whole.select(whole.finished_N), decoder.width, model.spec.pad_id)]
    history: list[Snapshot] = []
    while len(waiting) or decoder.busy:
        if (room := decoder.free) and len(waiting):
            decoder.add(waiting.select(slice(room)))
            waiting = waiting.select(slice(room, None))
        if decoding.rewrites:
            history.append(decoder.snapshot())
        done.append(decoder.step())
        if watch is not None:
            assert decoder.live is not None, "it has taken a step"
            watch(join([decoder.live, done[-1]]))
    rows_B = join(done)
    return _record(rows_B.select(rows_B.row_N.argsort()), width, group_B, model.spec.eos_ids, history)


def _record(rows: Canvas, width: int, group_B: Tensor, eos_ids: Sequence[int], history: list[Snapshot]) -> Rollouts:
    """Freeze finished rows."""
    ids_BT, response_BT = rows.ids_NT[:, :width], rows.response_NT[:, :width]
    seqs = Sequences(ids_BT, response_BT, rows.lengths_N)
    return Rollouts(
        seqs=seqs,
        counted_BT=seqs.through_eos(eos_ids),
        unmask_step_BT=rows.step_NT[:, :width],
        group_B=group_B,
        key_B=rows.key_N,
        forwards_B=rows.forwards_N,
        logp_BT=rows.logp_NT[:, :width],
        states_BST=_states(history, ids_BT) if history else None,
    )


def _states(history: list[Snapshot], ids_BT: Tensor) -> Tensor:
    """What each row looked like before each of its passes; after its last one, its final text."""
    steps = 1 + max(int(snapshot.forwards_N.max()) for snapshot in history)
    states_BST = ids_BT[:, None].repeat(1, steps, 1)
    for snapshot in history:
        states_BST[snapshot.row_N, snapshot.forwards_N] = snapshot.ids_NT[:, : ids_BT.shape[1]]
    return states_BST
