"""Run inside the sandbox: one program on many inputs, each in a process of its own.

Standard input: ``sources`` (the first that compiles), ``inputs``, ``seconds`` for each, ``output_bytes`` for each and
``stop`` (end at the first that fails). Prints one JSON line per input: its output, or null if it failed. Nothing here
is secret: the expected outputs never enter the sandbox, so there is nothing to forge.
"""

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from types import CodeType, ModuleType
from typing import Any


def main() -> None:
    """Answer every input."""
    with open(0, encoding="utf-8", closefd=False) as given:
        task = json.load(given)
    code = _compiled(task["sources"])
    for text in task["inputs"]:
        output = _output(code, text, task) if code else None
        os.write(1, (json.dumps(output) + "\n").encode())
        if output is None and task["stop"]:
            break


def _compiled(sources: list[str]) -> CodeType | None:
    for source in sources:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return compile(source, "program.py", "exec")
    return None


def _output(code: CodeType, text: str, task: dict[str, Any]) -> str | None:
    with tempfile.TemporaryFile() as source:
        source.write(text.encode("utf-8", "replace"))
        source.flush()
        os.lseek(source.fileno(), 0, os.SEEK_SET)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _become(code, source.fileno(), write, read)
        os.close(write)
    deadline = time.monotonic() + task["seconds"]
    output = _listen(read, deadline, task["output_bytes"])
    os.close(read)
    return output if _ended_well(child, deadline if output is not None else 0.0) else None


def _ended_well(child: int, deadline: float) -> bool:
    """Wait for its end, which may come later than that of its output, and kill it at the deadline."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.001)


def _become(code: CodeType, source: int, write: int, read: int) -> None:
    status = 1
    try:
        os.dup2(source, 0)
        os.dup2(write, 1)
        for inherited in (source, write, read):
            os.close(inherited)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(code, module.__dict__)
        status = 0
    except SystemExit as end:
        status = 0 if end.code in (None, 0) else 1
    except BaseException:
        pass
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os._exit(status)


def _listen(read: int, deadline: float, most: int) -> str | None:
    """The output up to its end; None past the deadline or the size."""
    data = bytearray()
    while len(data) <= most:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(read, 1 << 16)
        if not part:
            return data.decode("utf-8", "replace")
        data += part
    return None


if __name__ == "__main__":
    main()
