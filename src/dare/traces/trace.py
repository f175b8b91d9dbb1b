"""One decoded row and how it came about: what rollout files hold, and what terminal and page show."""

import re
from itertools import groupby, pairwise
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

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

    def texts(self) -> list[str]:
        """Return the text of what is decided after each pass, without special tokens."""
        return [
            "".join(text for text in frame if text is not None and not _SPECIAL.fullmatch(text))
            for frame in self.frames()[1:]
        ]

    def lines(self) -> list[str]:
        """Return one line of text per pass, with ``░`` for every masked position."""
        return [
            "".join(MASK if text is None else symbol(text) for text in frame[: self.shown])
            for frame in self.frames()[1:]
        ]


def spelled(text: str) -> Trace:
    """Return the trace of a text decoded word by word, each with probability 1: for texts that no model wrote."""
    parts = re.findall(r"\s*\S+|\s+$", text)
    writes = tuple(Write(at, at, part, 0.0) for at, part in enumerate(parts))
    return Trace(completion=text, passes=len(parts), given=(None,) * len(parts), writes=writes)


def symbol(text: str) -> str:
    """Return a token on one line: ``⏎`` for special tokens such as ``<|eos|>``, ``↵`` line break, ``⇥`` tab."""
    return "⏎" if _SPECIAL.fullmatch(text) else printable(text).replace("\n", "↵").replace("\t", "⇥")


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: control characters become their pictures."""
    return text.translate(_CONTROL)
