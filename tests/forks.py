"""Children of the test process: torch is imported already, so that a start costs little."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def start(job: Callable[[], Any], log: Path) -> int:
    """Run ``job`` in a child and return its process id; what it prints goes to ``log``."""
    child = os.fork()
    if child:
        return child
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.stdout = sys.stderr = os.fdopen(handle, "w", buffering=1)
    status = 1
    try:
        job()
        status = 0
    except BaseException as error:  # whatever it is, it must not reach the tests' own process
        traceback.print_exc()
        status = getattr(error, "status", 1)
    finally:
        os._exit(status)


def finish(child: int) -> int:
    """Wait for a child and return its exit status, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(child: int) -> int:
    """Kill a child as nothing can prevent, and return what ``finish`` does: 0 where it had ended before."""
    os.kill(child, signal.SIGKILL)
    return finish(child)
