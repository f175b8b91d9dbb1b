"""Decode a queue of texts: rows join as others leave, and come back in the order they were given."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dare.decoding.canvas import Canvas, canvas, completions, join, widen
from dare.decoding.config import DecodingConfig
from dare.decoding.decoder import Decoder, Ended, Prediction, Snapshot
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
    predictions: bool = False,
) -> Rollouts:
    """Decode the mask tokens of each text, block by block, at most ``rows`` texts at a time.

    ``tokens`` bounds the positions of one pass, rows times the longest text; one row is always let in. A row's result
    depends on its text and its key alone. Long texts come first, so that rows of like length share their passes.
    ``key_B`` may be ``[B, L]``: one key for each of L equal spans of the passes. ``predictions`` keeps what each pass
    made of the whole text, at the price of reading all masks in each; it changes no draw and no result.
    """
    whole = canvas(texts, decoding, model.spec, key_B)
    waiting = whole.select(~whole.finished_N)
    waiting = waiting.select(waiting.lengths_N.argsort(descending=True, stable=True))
    width = whole.ids_NT.shape[1]
    slots = max(1, min(rows, tokens // width))
    decoder = Decoder(model, decoding, min(slots, len(waiting)), width, ended, predictions)
    done = [widen(whole.select(whole.finished_N), decoder.width, model.spec.pad_id)]
    history: list[Snapshot] = []
    guesses: list[Prediction] = []
    while len(waiting) or decoder.busy:
        if (room := decoder.free) and len(waiting):
            decoder.add(waiting.select(slice(room)))
            waiting = waiting.select(slice(room, None))
        if decoding.rewrites:
            history.append(decoder.snapshot())
        done.append(decoder.step())
        if decoder.predicted is not None:
            guesses.append(decoder.predicted)
        if watch is not None:
            assert decoder.live is not None, "it has taken a step"
            watch(join([decoder.live, done[-1]]))
    rows_B = join(done)
    return _record(rows_B.select(rows_B.row_N.argsort()), width, group_B, model.spec.eos_ids, history, guesses)


def _record(
    rows: Canvas,
    width: int,
    group_B: Tensor,
    eos_ids: Sequence[int],
    history: list[Snapshot],
    guesses: list[Prediction],
) -> Rollouts:
    """Freeze finished rows."""
    ids_BT, response_BT = rows.ids_NT[:, :width], rows.response_NT[:, :width]
    seqs = Sequences(ids_BT, response_BT, rows.lengths_N)
    last_BT = torch.where(rows.step_NT[:, :width] >= 0, rows.best_NT[:, :width], 0.0)
    sure = [(guess.row_N, guess.forwards_N, guess.confidence_NT) for guess in guesses]
    return Rollouts(
        seqs=seqs,
        counted_BT=seqs.through_eos(eos_ids),
        unmask_step_BT=rows.step_NT[:, :width],
        group_B=group_B,
        key_B=rows.key_N if rows.key_N.dim() == 1 else rows.key_N[:, -1],
        forwards_B=rows.forwards_N,
        logp_BT=rows.logp_NT[:, :width],
        states_BST=_by_pass(history, ids_BT),
        predictions_BST=_by_pass([guess[:3] for guess in guesses], ids_BT),
        confidence_BST=_by_pass(sure, last_BT),
    )


def _by_pass(history: Sequence[tuple[Tensor, Tensor, Tensor]], last_BT: Tensor) -> Tensor | None:
    """Stack values noted of rows at their passes, (rows, passes, values); behind them stands a row's last value."""
    if not history:
        return None
    steps = 1 + max(int(forwards_N.max()) for _, forwards_N, _ in history)
    values_BST = last_BT[:, None].repeat(1, steps, 1)
    for row_N, forwards_N, value_NT in history:
        values_BST[row_N, forwards_N] = value_NT[:, : last_BT.shape[1]]
    return values_BST
