"""Ctrl-C and SIGTERM: the first lets a step finish, the second stops at once."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from dare.errors import DareError

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class StoppedError(DareError):
    """A run that the user stopped: its last step is saved. The exit status is 128 plus the signal's number."""

    label = "stopped"

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = 128 + number


class Signals:
    """While active, the first signal is only noted in ``received``; from then on signals act as they did before."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread and lets no other set a handler
        if threading.current_thread() is threading.main_thread():
            # what the shell told to ignore (a job in the background) stays ignored
            heard = [number for number in NAMES if signal.getsignal(number) is not signal.SIG_IGN]
            self.before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
        print(
            f"{NAMES[self.received]}: this step is finished and saved, then the run stops; again stops it at once",
            file=sys.stderr,
        )

    def _restore(self) -> None:
        while self.before:
            number, handler = self.before.popitem()
            signal.signal(number, handler)
