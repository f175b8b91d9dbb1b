"""What the adapters of external engines share: from what a server tells to ``Rollouts``."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.types import Rollouts, Sequences, pack


class Ids(Protocol):
    """The special ids a rollout is laid out with; a ``ModelSpec`` is one."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """End tokens; the first one fills what an answer leaves open."""
        ...

    @property
    def pad_id(self) -> int:
        """Padding."""
        ...


class Remote(Protocol):
    """A server that decodes."""

    def rollout(
        self, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor, group_B: Tensor
    ) -> Rollouts:
        """See ``Engine.rollout``; what the server does not tell is -1 (steps) or NaN (log-probabilities, passes)."""
        ...


class Row(NamedTuple):
    """A canvas as a server tells it; ``steps`` -1, ``logps`` and ``forwards`` NaN where it does not."""

    ids: list[int]
    steps: list[int]
    logps: list[float]
    forwards: float
    states: list[list[int]]


def untold(ids: Sequence[int], ended: bool, length: int, eos_id: int) -> Row:
    """A canvas of ``length`` of which only the answer is told; behind its end it is filled with EOS, as in training.

    Raises ``DareError`` for an answer that neither ended nor has the length that was asked for.
    """
    if not ended and len(ids) < length:
        raise DareError(
            f"the server stopped after {len(ids)} of {length} tokens without an end token; its context may be shorter "
            "than the prompt and decoding.max_new_tokens together, lower the latter"
        )
    filled = [*ids, *[eos_id] * (length - len(ids))][:length]
    return Row(filled, [-1] * length, [math.nan] * length, math.nan, [])


def only(decoding: DecodingConfig, sent: set[str], why: str) -> None:
    """Refuse settings that differ from their defaults and cannot be sent."""
    default = DecodingConfig().model_dump()
    for name, value in decoding.model_dump().items():
        if name not in sent and value != default[name]:
            raise DareError(f"decoding.{name}={value} {why}; set it there and leave it at {default[name]} here")


def batches(count: int, size: int) -> list[slice]:
    """Rows ``size`` at a time."""
    return [slice(start, start + size) for start in range(0, count, size)]


def assemble(
    prompts: Sequence[Sequence[int]], rows: Sequence[Row], ids: Ids, key_B: Tensor, group_B: Tensor
) -> Rollouts:
    """Lay rows out as ``denoise`` does."""
    texts = [[*prompt, *row.ids] for prompt, row in zip(prompts, rows, strict=True)]
    seqs = pack(texts, list(map(len, prompts)), ids.pad_id)
    known = not any(math.isnan(row.forwards) for row in rows)
    return Rollouts(
        seqs=seqs,
        counted_BT=seqs.through_eos(ids.eos_ids),
        unmask_step_BT=_spread(seqs, [row.steps for row in rows], torch.full_like(seqs.ids_BT, -1)),
        group_B=group_B,
        key_B=key_B,
        forwards_B=torch.tensor([row.forwards for row in rows], dtype=torch.int64 if known else torch.float64),
        logp_BT=_spread(seqs, [row.logps for row in rows], torch.zeros(seqs.ids_BT.shape)),
        states_BST=_states(seqs, [row.states for row in rows]),
    ).to(key_B.device)


def _spread(seqs: Sequences, values: Sequence[Sequence[float]], blank_BT: Tensor) -> Tensor:
    flat = torch.tensor([value for row in values for value in row], dtype=blank_BT.dtype)
    return blank_BT.masked_scatter(seqs.response_BT, flat)


def _states(seqs: Sequences, states: list[list[list[int]]]) -> Tensor | None:
    """What each row looked like before each of its passes; after its last one, its final text."""
    if not any(states):
        return None
    states_BST = seqs.ids_BT[:, None].repeat(1, max(map(len, states)), 1)
    for row, canvases in enumerate(states):
        for step, canvas in enumerate(canvases):
            states_BST[row, step, seqs.response_BT[row]] = torch.tensor(canvas)
    return states_BST
