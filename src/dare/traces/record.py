"""From decoded rows to their traces."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from transformers import PreTrainedTokenizerBase

from dare.traces.trace import Frame, Trace, Write
from dare.types import Rollouts


def words(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each token by itself."""
    return [str(tokenizer.decode([token])) for token in ids]


def trace(rollouts: Rollouts, row: int, tokenizer: PreTrainedTokenizerBase, start: int | None = None) -> Trace:
    """Return how a row was decoded, from position ``start`` on (None: the first that was masked).

    Its texts are empty; fill them with ``model_copy``.
    """
    seqs = rollouts.seqs
    open_T = seqs.response_BT[row]
    first = int(open_T.nonzero()[0]) if start is None else start
    span = slice(first, int(seqs.lengths_B[row]))
    ids = tuple(seqs.ids_BT[row, span].tolist())
    texts: Frame = list(words(tokenizer, ids))
    if rollouts.states_BST is None:
        writes = _written(rollouts, row, span, texts)
    else:
        writes = _rewritten(rollouts, row, span, tokenizer)
    if not writes:
        return Trace(passes=0, given=tuple(texts), decoded_ids=ids)
    given = [None if masked else text for masked, text in zip(open_T[span].tolist(), texts, strict=True)]
    forwards = float(rollouts.forwards_B[row])
    passes = 1 + max(write.at for write in writes) if math.isnan(forwards) else int(forwards)
    return Trace(passes=passes, given=tuple(given), writes=tuple(writes), decoded_ids=ids)


def traces(rollouts: Rollouts, tokenizer: PreTrainedTokenizerBase) -> list[Trace]:
    """Return the trace of every row."""
    return [trace(rollouts, row, tokenizer) for row in range(len(rollouts.group_B))]


def _written(rollouts: Rollouts, row: int, span: slice, texts: Frame) -> list[Write]:
    """Every position was decided once."""
    steps, logps = rollouts.unmask_step_BT[row, span].tolist(), _logps(rollouts, row, span)
    return sorted(
        Write(step, position, texts[position], logps[position]) for position, step in enumerate(steps) if step >= 0
    )


def _rewritten(rollouts: Rollouts, row: int, span: slice, tokenizer: PreTrainedTokenizerBase) -> list[Write]:
    """What differs between one state and the next; the log-probability is known of the decision that lasted."""
    assert rollouts.states_BST is not None
    states_ST = torch.cat([rollouts.states_BST[row], rollouts.seqs.ids_BT[row, None]])[:, span]
    steps_T, logps = rollouts.unmask_step_BT[row, span], _logps(rollouts, row, span)
    mask_id = int(rollouts.states_BST[row, 0][rollouts.seqs.response_BT[row]][0])  # nothing is decided yet
    writes = []
    for at, (before_T, after_T) in enumerate(pairwise(states_ST)):
        # where decoding ended early, the rest is filled without having been decided
        for position in ((before_T != after_T) & (steps_T >= 0)).nonzero()[:, 0].tolist():
            token = int(after_T[position])
            text = None if token == mask_id else words(tokenizer, [token])[0]
            writes.append(Write(at, position, text, logps[position] if at == steps_T[position] else None))
    return writes


def _logps(rollouts: Rollouts, row: int, span: slice) -> list[float | None]:
    return [None if math.isnan(logp) else round(logp, 4) for logp in rollouts.logp_BT[row, span].tolist()]
