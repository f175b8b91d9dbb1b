"""A real server on a free port of the loopback interface, in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from dare.decoding.config import DecodingConfig
from dare.models.checkpoint import Checkpoint
from dare.serving.client import Client
from dare.serving.run import listen, offer
from dare.serving.scheduler import Scheduler
from dare.serving.server import Server

DEFAULTS = DecodingConfig(max_new_tokens=24, block_size=8, steps=12)


@contextmanager
def running(checkpoint: Checkpoint, name: str = "tiny", rows: int = 6, queue: int = 64) -> Iterator[Client]:
    scheduler = Scheduler(checkpoint.model, "cpu", rows=rows, queue=queue, groups=2)
    listener = listen("127.0.0.1", 0)
    app = Server(offer(checkpoint, name, DEFAULTS), scheduler).application()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60)
    finally:
        server.should_exit = True
        thread.join()
        assert not scheduler.thread.is_alive()
