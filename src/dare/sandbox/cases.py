"""Run inside the sandbox: one program on many inputs, each in a process of its own.

Standard input: ``sources`` (the first that compiles), ``inputs``, ``seconds`` for each, ``output_bytes`` for each and
``stop`` (end at the first that fails). Prints one JSON line per input: its output, or null if it failed. Nothing here
is secret: the expected outputs never enter the sandbox, so there is nothing to forge.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from types import CodeType, ModuleType
from typing import Any


def main() -> None:
    """Answer every input. The process of an input returns from here when the program is through, and ends like any."""
    with open(0, encoding="utf-8", closefd=False) as given:
        task = json.load(given)
    code = _compiled(task["sources"])
    gc.freeze()  # what is shared with the processes of the inputs is not copied by their collections
    for text in task["inputs"]:
        output = None
        if code:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                _redirect(text, write)
                sys.modules["__main__"] = module = ModuleType("__main__")
                exec(code, module.__dict__)
                return
            os.close(write)
            output = _output(child, read, task)
            os.close(read)
        os.write(1, (json.dumps(output) + "\n").encode())
        if output is None and task["stop"]:
            break


def _compiled(sources: list[str]) -> CodeType | None:
    for source in sources:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return compile(source, "program.py", "exec")
    return None


def _output(child: int, read: int, task: dict[str, Any]) -> str | None:
    deadline = time.monotonic() + task["seconds"]
    output = _listen(read, deadline, task["output_bytes"])
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


def _redirect(text: str, write: int) -> None:
    """Read ``text`` from now on, from a file, since programs ask for its size; print to ``write``."""
    name = f"input-{os.getpid()}"  # by hand: ``tempfile`` and ``pathlib`` are slow to import
    with open(name, "x+b") as source:  # noqa: PTH123
        os.unlink(name)  # noqa: PTH108
        source.write(text.encode("utf-8", "replace"))
        source.seek(0)
        os.dup2(source.fileno(), 0)
    os.dup2(write, 1)
    os.close(write)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115


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
