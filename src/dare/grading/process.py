"""A process that calls rewards and can be killed.

A worker is started by a command of its own, neither forked nor by ``multiprocessing``: it inherits no threads, does not
run the script of the run a second time, shares no lock or queue with the other workers that its death could leave
locked, and leads a process group that is killed with it.
"""

import contextlib
import json
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import time

from dare.errors import DareError
from dare.grading.call import Reply, Request
from dare.grading.channel import Channel

MOST_BYTES = 1 << 22
SEND_SECONDS = 30.0

_START = """
import json, sys
descriptor, memory_mb, sys.path = json.loads(sys.argv[1])
from dare.grading.worker import serve
serve(descriptor, memory_mb)
"""


class Worker:
    """A process and our end of its channel. ``number`` is that of the request it works on; ``None``: it is free."""

    def __init__(self, memory_mb: int):
        ours, theirs = socket.socketpair()
        path = [*sys.path, *([] if "" in sys.path else [os.getcwd()])]  # noqa: PTH109
        setup = json.dumps([theirs.fileno(), memory_mb, path])
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, setup],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a reward prints does not mix with what the run prints
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.channel = Channel(ours, SEND_SECONDS)
        self.number: int | None = None
        self.deadline, self.limit, self.calls = 0.0, 0.0, 0

    @property
    def alive(self) -> bool:
        """Whether it can work."""
        return self.process.poll() is None

    def ask(self, number: int, request: Request) -> None:
        """Send a request; one that cannot be sent is answered by ``reply``."""
        self.number, self.calls, self.limit = number, self.calls + 1, request.seconds
        with contextlib.suppress(OSError):
            self.channel.send(_pickled(request))
        self.deadline = time.monotonic() + request.seconds

    def reply(self) -> Reply:
        """Return the answer, or what became of the worker, which is killed if it is late."""
        self.number = None
        if self._late():
            self.kill()
            return Reply(
                failure=f"it took longer than {self.limit:g} s and was stopped", seconds=self.limit, stopped=True
            )
        try:
            return Reply(**json.loads(self.channel.receive(MOST_BYTES)))
        except (EOFError, OSError, ValueError, TypeError):
            self._await_end()
            self.kill()
            return Reply(failure=f"its process ended {_ended(self.process.returncode)}", stopped=True)

    def kill(self) -> None:
        """End the process with everything it started."""
        if self.process.returncode is None:  # else the number may be another's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.channel.close()
        self.number = None

    def _await_end(self) -> None:
        """Give a process that closed its channel a second to end, and leave its status and its group where they are."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                break
            time.sleep(0.01)

    def _late(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            return not selector.select(0)


def _pickled(request: Request) -> bytes:
    try:
        return pickle.dumps(request)
    except Exception as error:
        raise DareError(f"reward at {request.where}: a column cannot be sent to its process: {error}") from error


def _ended(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    names = {signal.SIGKILL: "killed, for want of memory perhaps", signal.SIGSEGV: "by a crash"}
    return names.get(signal.Signals(-status), f"by signal {-status}")
