"""From token ids to text: as far as it is certain, and up to where the answer ends."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

_BROKEN = "\ufffd"


class Answer(NamedTuple):
    """``ids`` up to the end token, or to the token that completes a stop string; ``text`` without that string."""

    ids: list[int]
    text: str
    reason: str


@dataclass(frozen=True)
class Ending:
    """Where an answer ends: with its first end token or before its first stop string, whichever comes first."""

    tokenizer: PreTrainedTokenizerBase
    eos_ids: tuple[int, ...]
    stops: tuple[str, ...] = ()

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the text of these ids holds a stop string."""
        return self._cut(self._text(ids)) is not None

    def close(self, ids: Sequence[int]) -> Answer:
        """The answer in a finished canvas; its reason is OpenAI's ``finish_reason``."""
        counted = self._counted(ids)
        text = self._text(counted)
        cut = self._cut(text)
        if cut is not None:
            length = bisect_left(range(len(counted)), True, key=lambda count: self.reached(counted[:count]))
            return Answer(counted[:length], text[:cut], "stop")
        return Answer(counted, text, "stop" if counted and counted[-1] in self.eos_ids else "length")

    def certain(self, ids: Sequence[int]) -> str:
        """The text that no later token can change: without half a character, without what may begin a stop string."""
        text = self._text(ids)
        cut = self._cut(text)
        if cut is not None:
            return text[:cut]
        text = text.rstrip(_BROKEN)
        held = [size for stop in self.stops for size in range(1, len(stop)) if text.endswith(stop[:size])]
        return text[: len(text) - max(held, default=0)]

    def _counted(self, ids: Sequence[int]) -> list[int]:
        ends = [place for place, token in enumerate(ids) if token in self.eos_ids]
        return list(ids[: ends[0] + 1] if ends else ids)

    def _text(self, ids: Sequence[int]) -> str:
        text = self.tokenizer.decode(self._counted(ids), skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    def _cut(self, text: str) -> int | None:
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        return min(places, default=None)
