"""Several workers that call rewards, in order, within limits."""

import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from dare.grading.call import Reply, Request
from dare.grading.process import Worker

MOST_CALLS = 2000
"""Calls after which a worker is replaced, so that what its libraries remember does not grow without bound."""


class Pool:
    """At most ``size`` workers, started when they are needed; safe to use from several threads, which take turns."""

    def __init__(self, size: int, memory_mb: int):
        self.size, self.memory_mb = size, memory_mb
        self._workers: list[Worker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, requests: Sequence[Request]) -> list[Reply]:
        """Carry the requests out, several at a time, and return the replies in their order.

        One that takes longer than its ``seconds``, or whose worker ends, has a failure for a reply; the worker is
        replaced.
        """
        replies = [Reply() for _ in requests]
        waiting = deque(range(len(requests)))
        with self._lock:
            try:
                while waiting or self._busy:
                    self._employ(waiting, requests)
                    for worker in self._stirred():
                        number = worker.number
                        assert number is not None
                        replies[number] = worker.reply()
            finally:
                for worker in self._busy:
                    worker.kill()
        return replies

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            for worker in self._workers:
                worker.kill()
            self._workers.clear()

    @property
    def _busy(self) -> list["Worker"]:
        return [worker for worker in self._workers if worker.number is not None]

    def _employ(self, waiting: deque[int], requests: Sequence[Request]) -> None:
        """Give every free worker a request; start workers while there are more requests."""
        for worker in self._workers:
            if worker.number is None and worker.calls >= MOST_CALLS:
                worker.kill()
        self._workers = [worker for worker in self._workers if worker.alive]
        free = deque(worker for worker in self._workers if worker.number is None)
        while waiting and (free or len(self._workers) < self.size):
            if not free:
                self._workers.append(Worker(self.memory_mb))
                free.append(self._workers[-1])
            number = waiting.popleft()
            free.popleft().ask(number, requests[number])

    def _stirred(self) -> list["Worker"]:
        """Wait until workers have answered, ended or taken too long, and return them."""
        busy = self._busy
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            ready = selector.select(max(0.0, min(worker.deadline for worker in busy) - time.monotonic()))
        answered = [key.data for key, _ in ready]
        return answered or [worker for worker in busy if worker.deadline <= time.monotonic()]
