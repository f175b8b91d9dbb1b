"""Run a command that starts ``inside.py``, feed it, and hold it to its time and output from outside."""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dare.errors import DareError
from dare.sandbox.base import Limits, Outcome, Status
from dare.sandbox.inside import READY

START_SECONDS = 30.0
"""A busy machine may take this long to start a sandbox; the program's own time begins after that."""

_END_SECONDS = 5.0
_KEPT_ERRORS = 2000
_CHUNK = 1 << 16


def python_command(python: str, program: bytes, resources: Mapping[str, int]) -> list[str]:
    """Return the command that runs ``inside.py`` under ``resources``: isolated, no site-packages, no bytecode."""
    script = Path(__file__).with_name("inside.py").read_text("utf-8")
    task = {"length": len(program), "limits": dict(resources)}
    return [python, "-I", "-S", "-B", "-X", "utf8", "-c", script, json.dumps(task)]


def supervise(
    command: Sequence[str],
    data: bytes,
    limits: Limits,
    *,
    environment: Mapping[str, str],
    folder: str,
    files: Sequence[int] = (),
    told: int | None = None,
) -> Outcome:
    """Run ``command`` with ``data`` as its standard input until it ends, takes too long or prints too much.

    Its process group is killed in every case. ``files`` are descriptors it inherits; ``told`` one from which bubblewrap
    tells the first process of a sandbox. ``DareError`` when it ends, or 30 seconds pass, without the word that the
    program is about to start.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        pass_fds=files,
        start_new_session=True,
    ) as process:
        run = _Run(process, memoryview(data), limits)
        try:
            status = run.watch()
        finally:
            _kill(process, told, run.ended)
    return run.outcome(status or ("ok" if process.returncode == 0 else "error"))


@dataclass
class _Run:
    process: subprocess.Popen[bytes]
    unsent: memoryview
    limits: Limits
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    started: float = field(default_factory=time.monotonic)
    ready: bool = False
    ended: bool = False

    def watch(self) -> Status | None:
        """Move bytes until the command ends (None) or breaks a limit."""
        end = os.pidfd_open(self.process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(end, selectors.EVENT_READ, self._end)
                self._register(selector, self.process.stdin, selectors.EVENT_WRITE, self._send)
                self._register(selector, self.process.stdout, selectors.EVENT_READ, self._hear)
                self._register(selector, self.process.stderr, selectors.EVENT_READ, self._hear_errors)
                return self._loop(selector)
        finally:
            os.close(end)

    def _register(self, selector: selectors.BaseSelector, pipe: IO[bytes] | None, event: int, action: object) -> None:
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, event, action)

    def _loop(self, selector: selectors.BaseSelector) -> Status | None:
        while not self.ended:
            left = self.started + (self.limits.seconds if self.ready else START_SECONDS) - time.monotonic()
            if left <= 0:
                return "timeout"
            events = selector.select(left)
            # the end last: what was written before it is read before it
            for key, _ in sorted(events, key=lambda event: event[0].data == self._end):
                if not key.data(key.fileobj):
                    selector.unregister(key.fileobj)
            if len(self.output) > self.limits.output_bytes + len(READY):
                return "output_limit"
        return None

    def _send(self, pipe: IO[bytes]) -> bool:
        try:
            self.unsent = self.unsent[os.write(pipe.fileno(), self.unsent[:_CHUNK]) :]
        except BrokenPipeError:
            self.unsent = self.unsent[:0]
        if not self.unsent:
            pipe.close()
        return bool(self.unsent)

    def _hear(self, pipe: IO[bytes]) -> bool:
        part = _read(pipe)
        self.output += part
        if not self.ready and self.output.startswith(READY):
            self.ready, self.started = True, time.monotonic()
        return bool(part)

    def _hear_errors(self, pipe: IO[bytes]) -> bool:
        part = _read(pipe)
        self.errors += part[: _KEPT_ERRORS - len(self.errors)]
        return bool(part)

    def _end(self, _: int) -> bool:
        assert self.process.stdout is not None and self.process.stderr is not None
        while len(self.output) <= self.limits.output_bytes + len(READY) and self._hear(self.process.stdout):
            pass
        self._hear_errors(self.process.stderr)
        self.ended = True
        return False

    def outcome(self, status: Status) -> Outcome:
        """Return the end of a program that started; ``DareError`` for one that never did."""
        if not self.ready:
            said = self.errors.decode("utf-8", "replace").strip() or "nothing was reported"
            raise DareError(f"the sandbox did not start the program ({status}): {said[-500:]}")
        text = bytes(self.output[len(READY) :][: self.limits.output_bytes]).decode("utf-8", "replace")
        return Outcome(status, text, time.monotonic() - self.started)


def _kill(process: subprocess.Popen[bytes], told: int | None, ended: bool) -> None:
    """Kill a sandbox from within, so that the processes around it wait for it and for each other.

    Killed first, they would leave it to the init of the machine, and that of a container may never collect the dead.
    """
    first = re.search(rb'"child-pid": *([0-9]+)', _read(told)) if told is not None and not ended else None
    if first:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.kill(int(first[1]), signal.SIGKILL)
            process.wait(_END_SECONDS)
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)  # not yet waited for, so the number is still its own


def _read(pipe: IO[bytes] | int) -> bytes:
    try:
        return os.read(pipe if isinstance(pipe, int) else pipe.fileno(), _CHUNK)
    except BlockingIOError:
        return b""
