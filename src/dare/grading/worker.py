"""The process that ``pool`` starts: it calls one reward after another, and nothing else.

What it is asked comes from its own run and is pickled; what it answers may be of a stranger's making and is JSON.
"""

import contextlib
import json
import pickle
import resource
import signal
import socket
from dataclasses import asdict

from dare.grading.call import Request, answer
from dare.grading.channel import Channel

GRACE = 5.0
"""Seconds after which a worker ends itself, if the run that should have stopped it is gone."""


def serve(descriptor: int, memory_mb: int) -> None:
    """Answer requests until the other end closes."""
    with contextlib.suppress(ValueError):  # where the limit is lower already
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))
    channel = Channel(socket.socket(fileno=descriptor))
    with contextlib.suppress(EOFError, OSError):
        while True:
            request: Request = pickle.loads(channel.receive())
            signal.setitimer(signal.ITIMER_REAL, request.seconds + GRACE)
            reply = json.dumps(asdict(answer(request)))
            signal.setitimer(signal.ITIMER_REAL, 0)
            channel.send(reply.encode())
