"""One decoded row and how it came about: what rollout files hold, and what terminal and page show."""

import math
import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from transformers import PreTrainedTokenizerBase

from dare.types import Rollouts

MASK = "░"
_SPECIAL = re.compile(r"<\|[^|]*\|>|</s>|<(eos|pad)>|\[(EOS|PAD)\]")
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}

Frame = list[str | None]
"""The text of each position after a pass; None where it is masked."""


class Write(NamedTuple):
    """Pass ``at`` (from 0) set ``position`` to ``text``, None for a mask; ``logp`` (nats) where it is known."""

    at: int
    position: int
    text: str | None
    logp: float | None


class Trace(BaseModel):
    """``given`` is the row before the first pass, ``writes`` what each of the ``passes`` changed, in their order.

    ``decoded_ids`` are the row's final tokens. ``name`` says whose answer it is, ``prompt`` and ``expected`` what was
    asked and hoped for, ``completion`` what came of it, ``score`` its reward; ``step`` the training step it belongs to.
    A row whose order of decoding is unknown has no writes: its final text is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    step: int | None = None
    prompt: str = ""
    expected: str = ""
    completion: str = ""
    score: float | None = None
    passes: int = Field(ge=0)
    given: tuple[str | None, ...]
    writes: tuple[Write, ...] = ()
    decoded_ids: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for write in self.writes:
            if not (0 <= write.at < self.passes and 0 <= write.position < len(self.given)):
                raise ValueError(f"pass {write.at} at position {write.position} lies outside the row")
        if any(one.at > other.at for one, other in pairwise(self.writes)):
            raise ValueError("writes are not in the order of their passes")
        return self

    @property
    def shown(self) -> int:
        """Leading positions that were given or ever decided: what follows the last of them is not worth showing."""
        written = {write.position for write in self.writes}
        return max((i + 1 for i, text in enumerate(self.given) if text is not None or i in written), default=0)

    def frames(self) -> list[Frame]:
        """Return the row before the first pass and after each of them."""
        frames: list[Frame] = [list(self.given)]
        writes = {at: list(group) for at, group in groupby(self.writes, lambda write: write.at)}
        for at in range(self.passes):
            frames.append(list(frames[-1]))
            for write in writes.get(at, ()):
                frames[-1][write.position] = write.text
        return frames

    def lines(self) -> list[str]:
        """Return one line of text per pass, with ``░`` for every masked position."""
        return [
            "".join(MASK if text is None else symbol(text) for text in frame[: self.shown])
            for frame in self.frames()[1:]
        ]


def symbol(text: str) -> str:
    """Return a token on one line: ``⏎`` for special tokens such as ``<|eos|>``, ``↵`` line break, ``⇥`` tab."""
    return "⏎" if _SPECIAL.fullmatch(text) else printable(text).replace("\n", "↵").replace("\t", "⇥")


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: control characters become their pictures."""
    return text.translate(_CONTROL)


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
