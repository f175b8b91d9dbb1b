"""Tokenised examples, and the streams they are drawn from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from dare.types import Example


@dataclass(frozen=True)
class Item:
    """A tokenised example; ``index`` is its number in the split and part of its noise key.

    ``answer_ids`` (SFT) end with the template's end-of-turn token where it has one, and without EOS; ``rejected_ids``
    (preference pairs) likewise. ``ends`` False: the answer goes on beyond what is here, so no EOS follows it.
    ``epoch`` how often its source had been gone through before, set when the row is drawn.
    """

    index: int
    example: Example
    prompt_ids: list[int]
    answer_ids: list[int]
    rejected_ids: list[int] = field(default_factory=list)
    ends: bool = True
    epoch: int = 0


class Draws(Protocol):
    """Rows without end. The state is plain JSON and tells the next draw exactly."""

    def draw(self) -> Item:
        """Return the next row, with its epoch."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the draws have come to."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after ``state``."""
        ...


@dataclass(frozen=True)
class Source:
    """Where a run draws from: ``open`` it with a seed, as often as ``weight`` says among the others."""

    open: Callable[[int], Draws]
    weight: float


@dataclass(frozen=True)
class Items:
    """Rows that fit; of a stream (``window`` rows in memory at a time), those of its first window.

    ``dropped`` rows were too long or had no ground truth, ``cut`` answers were shortened, neither of which is known of
    a stream; ``sources`` is what a run draws from.
    """

    rows: list[Item]
    dropped: int
    cut: int = 0
    sources: tuple[Source, ...] = ()
    window: int | None = None

    def summary(self) -> str:
        """Return the counts in words."""
        if self.window is not None:
            return f"streamed {self.window} at a time; {len(self.rows)} to learn from in the first"
        return f"{len(self.rows)} kept, {self.dropped} left out" + (f", {self.cut} answers cut" if self.cut else "")
