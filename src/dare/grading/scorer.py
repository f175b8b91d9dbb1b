"""A reward with its options: what it is called with, where it runs, and what is remembered."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dare.errors import DareError
from dare.grading.call import Reply, Request, answer
from dare.grading.interface import Interface
from dare.grading.reading import Reading, read

Row = tuple[str, Mapping[str, Any]]
"""A completion and the columns that go with it."""

Run = Callable[[Sequence[Request]], list[Reply]]
"""Carries requests out."""


class Memory:
    """The latest ``size`` readings, by the content of what was graded."""

    def __init__(self, size: int):
        self.size = size
        self._known: OrderedDict[str, Reading] = OrderedDict()

    def get(self, key: str) -> Reading | None:
        """Return what is known of an equal call; it took no time."""
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return replace(self._known[key], seconds=None)

    def put(self, key: str, reading: Reading) -> None:
        """Remember a reading, and forget the oldest one where there are too many."""
        self._known[key] = reading
        while len(self._known) > self.size:
            self._known.popitem(last=False)


@dataclass(frozen=True)
class Scorer:
    """Calls the reward at ``where``, each time for at most ``seconds``, by ``run``.

    ``trusted``: a verifier of DARE's own, so that a completion over which it is stopped is to blame for it.
    """

    label: str
    where: str | Callable[..., Any]
    options: Mapping[str, Any]
    run: Run
    seconds: float
    memory: Memory | None = None
    trusted: bool = False

    @cached_property
    def interface(self) -> Interface:
        """What the reward takes; ``DareError`` where it cannot be loaded or does not have the options."""
        (reply,) = self.run([Request(self.where, self.seconds)])
        if reply.failure:
            raise DareError(f"reward {self.label!r}: {reply.failure.removeprefix(f'reward {self.label!r}: ')}")
        interface = Interface(**reply.found)
        interface.check_options(self.label, self.options)
        return interface

    def told(self) -> dict[str, float]:
        """Return what a learned reward counts itself: calls, tokens, texts that were cut."""
        counts = getattr(self.where, "counts", None)
        return counts() if counts else {}

    def check(self, rows: Sequence[Row]) -> None:
        """Raise ``DareError`` for a row that lacks what the reward requires."""
        for _, columns in rows:
            self.interface.arguments(self.label, columns, self.options)

    def score(self, rows: Sequence[Row]) -> list[Reading]:
        """Grade each completion."""
        arguments = [self.interface.arguments(self.label, columns, self.options) for _, columns in rows]
        texts = [completion for completion, _ in rows]
        return self._together(texts, arguments) if self.interface.batch else self._each(texts, arguments)

    def _each(self, texts: Sequence[str], arguments: Sequence[dict[str, Any]]) -> list[Reading]:
        """One call per completion; equal ones share it, unless the reward looks at how they came about."""
        memory = None if self.interface.trajectory else self.memory
        if memory is None:
            keys = [str(place) for place in range(len(texts))]
        else:
            keys = [self._key(text, given) for text, given in zip(texts, arguments, strict=True)]
        found = {key: known for key in keys if memory and (known := memory.get(key))}
        new = {key: place for place, key in enumerate(keys) if key not in found}
        requests = [Request(self.where, self.seconds, texts[place], arguments[place]) for place in new.values()]
        for key, reply in zip(new, self.run(requests), strict=True):
            found[key] = self._read(reply, reply.found)
            if memory and not reply.failure:
                memory.put(key, found[key])
        return [found[key] for key in keys]

    def _together(self, texts: list[str], arguments: Sequence[dict[str, Any]]) -> list[Reading]:
        """One call for all completions: each argument becomes a list, but for the options."""
        names = dict.fromkeys(name for given in arguments for name in given if name not in self.options)
        lists = {name: [given.get(name) for given in arguments] for name in names}
        (reply,) = self.run([Request(self.where, self.seconds, texts, lists | dict(self.options))])
        share = replace(reply, seconds=reply.seconds / len(texts))
        return [self._read(share, found) for found in (reply.found or [None] * len(texts))]

    def _read(self, reply: Reply, found: Any) -> Reading:
        if reply.failure is None:
            return read(found, reply.seconds)
        return Reading(failure=reply.failure, excused=reply.stopped and self.trusted, seconds=reply.seconds)

    def _key(self, text: str, arguments: Mapping[str, Any]) -> str:
        """What decides about a score."""
        content = json.dumps([self.label, text, arguments], sort_keys=True, default=repr)
        return hashlib.sha256(content.encode()).hexdigest()


def here(requests: Sequence[Request]) -> list[Reply]:
    """Carry requests out in this process, which nothing stops."""
    return [answer(request) for request in requests]
