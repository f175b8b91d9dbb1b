"""One thread owns the model: requests join it between two steps and leave when they are done."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from dare.decoding.canvas import Canvas, canvas, completions
from dare.decoding.config import DecodingConfig
from dare.decoding.decoder import Decoder, Ended
from dare.errors import DareError
from dare.models.base import DiffusionLM

_SHORTEST = 64
"""Rows up to this length share their passes whatever their lengths."""


class State(NamedTuple):
    """A row after one of its passes: its canvas, and how many leading tokens no later pass can change."""

    forwards: int
    ids: list[int]
    final: int


class Decoded(NamedTuple):
    """A finished row: for every position of the canvas its token, the pass that decided it (-1: none) and its
    log-probability (nats); ``states`` the canvas before each pass, where recorded and tokens may be decided twice.
    """

    ids: list[int]
    steps: list[int]
    logps: list[float]
    forwards: int
    states: list[list[int]]


Event = State | Decoded | Exception
Place = tuple[DecodingConfig, int]
"""Rows share their passes if they have the settings and the length, rounded up to a power of two, in common."""


@dataclass(eq=False)
class Job:
    """One row to decode. ``tell`` hears every event, on the scheduler's thread; the last one is no ``State``.

    ``watched`` asks for a ``State`` after each pass, ``recorded`` for the canvas before each; ``ended`` sees the tokens
    that are final and may stop the row.
    """

    prompt: Sequence[int]
    decoding: DecodingConfig
    key: int
    tell: Callable[[Event], None]
    watched: bool = False
    recorded: bool = False
    ended: Ended | None = None
    cancelled: bool = False
    states: list[list[int]] = field(default_factory=list)

    @property
    def place(self) -> Place:
        """The group it belongs to."""
        length = len(self.prompt) + self.decoding.max_new_tokens
        return self.decoding, max(_SHORTEST, 1 << (length - 1).bit_length())


class QueueFullError(DareError):
    """Too many rows wait already."""


class ClosedError(DareError):
    """The scheduler takes no more rows."""


class Group:
    """The rows that share their passes, and their jobs."""

    def __init__(self, model: DiffusionLM, device: str, decoding: DecodingConfig, slots: int, width: int):
        self.decoder = Decoder(model, decoding, slots, width)
        self.device, self.decoding, self.spec = device, decoding, model.spec
        self.jobs: dict[int, Job] = {}
        self.numbers = count()

    def join(self, jobs: Sequence[Job]) -> None:
        """Let jobs join."""
        numbered = {next(self.numbers): job for job in jobs}
        texts = completions([job.prompt for job in jobs], self.decoding.max_new_tokens, self.spec.mask_id)
        keys_N = torch.tensor([job.key for job in jobs], device=self.device)
        rows = canvas(texts, self.decoding, self.spec, keys_N)
        self.jobs |= numbered
        self.decoder.add(replace(rows, row_N=torch.tensor(list(numbered), device=self.device)))

    def step(self) -> None:
        """Take one step and tell the jobs about it."""
        if self.decoding.rewrites and any(job.recorded for job in self.jobs.values()):
            for job, ids in zip(*self._look(), strict=True):
                job.states.append(ids)
        self._leave(self.decoder.step())
        if any(job.watched or job.ended for job in self.jobs.values()):
            self._tell()
        self._take([job.cancelled for job in self.jobs.values()])

    @property
    def _live(self) -> Canvas:
        assert self.decoder.live is not None, "jobs join first"
        return self.decoder.live

    def _look(self) -> tuple[list[Job], list[list[int]]]:
        """The jobs in the order of the live rows, which is the order they joined in, and their canvases."""
        rows = zip(self._live.ids_NT.cpu(), self._live.response_NT.cpu(), strict=True)
        return list(self.jobs.values()), [ids_T[mine_T].tolist() for ids_T, mine_T in rows]

    def _tell(self) -> None:
        finals, passes = _final(self._live, self.decoding.rewrites).tolist(), self._live.forwards_N.tolist()
        ended = []
        for job, ids, final, forwards in zip(*self._look(), finals, passes, strict=True):
            ended.append(job.ended is not None and job.ended(ids[:final]))
            if job.watched:
                job.tell(State(forwards, ids, final))
        self._take(ended)

    def _take(self, which: list[bool]) -> None:
        if any(which):
            self._leave(self.decoder.take(torch.tensor(which, device=self.device)))

    def _leave(self, done: Canvas) -> None:
        for row, number in enumerate(done.row_N.tolist()):
            mine_T = done.response_NT[row]
            columns = (done.ids_NT, done.step_NT, done.logp_NT)
            ids, steps, logps = (column[row][mine_T].tolist() for column in columns)
            job = self.jobs.pop(number)
            job.tell(Decoded(ids, steps, logps, int(done.forwards_N[row]), job.states))


class Scheduler:
    """Decodes jobs in the order they came, ``rows`` at a time, on a thread of its own.

    A job's result depends on the job alone (see ``Decoder``). ``waiting`` and ``live`` count rows.
    """

    def __init__(self, model: DiffusionLM, device: str, rows: int, queue: int, groups: int):
        self.model, self.device, self.rows, self.queue, self.most_groups = model, device, rows, queue, groups
        self.changed = threading.Condition()
        self.line: deque[Job] = deque()
        self.groups: dict[Place, Group] = {}
        self.closed = False
        self.thread = threading.Thread(target=self._run, name="decoder", daemon=True)
        self.thread.start()

    @property
    def waiting(self) -> int:
        """Rows that have not joined yet."""
        return len(self.line)

    @property
    def live(self) -> int:
        """Rows that are being decoded."""
        return sum(len(group.jobs) for group in list(self.groups.values()))

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, all or none; raises ``QueueFullError`` or ``ClosedError``."""
        with self.changed:
            if self.closed:
                raise _closed()
            if len(self.line) + len(jobs) > self.queue:
                raise QueueFullError(f"{len(self.line)} answers wait and {self.queue} may; try again later")
            self.line.extend(jobs)
            self.changed.notify()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Forget jobs; those that are being decoded leave before the next step."""
        with self.changed:
            for job in jobs:
                job.cancelled = True
            self.line = deque(job for job in self.line if not job.cancelled)

    def close(self) -> None:
        """Finish the step in progress, refuse what is left, and end the thread."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _run(self) -> None:
        while self._wait():
            joining = self._next()
            for place in [*self.groups, *(place for place in joining if place not in self.groups)]:
                self._work(place, joining.get(place, []))
        for job in [*self.line, *(job for group in self.groups.values() for job in group.jobs.values())]:
            job.tell(_closed())

    def _wait(self) -> bool:
        """Sleep until there is something to do; False once closed."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.line or self.groups)
            return not self.closed

    def _next(self) -> dict[Place, list[Job]]:
        """Take jobs from the line, strictly in turn, so that none waits for ever."""
        joining: dict[Place, list[Job]] = {}
        with self.changed:
            for _ in range(min(len(self.line), self.rows - self.live)):
                place = self.line[0].place
                places = self.groups.keys() | joining.keys()
                if place not in places and len(places) >= self.most_groups:
                    break
                joining.setdefault(place, []).append(self.line.popleft())
        return joining

    def _work(self, place: Place, joining: Sequence[Job]) -> None:
        """Let jobs join a group and take its next step; should that fail, its rows fail and the others go on."""
        try:
            if place not in self.groups:
                width = min(place[1], self.model.spec.context)
                self.groups[place] = Group(self.model, self.device, place[0], self.rows, width)
            group = self.groups[place]
            if joining:
                group.join(joining)
            group.step()
            if not group.jobs:
                del self.groups[place]
        except Exception as error:  # whatever it is, it must not end the thread that all others wait for
            failed = self.groups.pop(place, None)
            for job in {*joining, *(failed.jobs.values() if failed else ())}:
                job.tell(error)


def _closed() -> ClosedError:
    return ClosedError("the server is shutting down; send the request to another one")


def _final(live: Canvas, rewrites: bool) -> Tensor:
    """Leading response tokens of each row that no later pass can change."""
    unsure_NT = live.masked_NT | (live.block_NT >= live.current_N[:, None]) if rewrites else live.masked_NT
    before_NT = (unsure_NT & live.response_NT).cumsum(1) == 0
    return (before_NT & live.response_NT).sum(1)
