"""A chat endpoint that answers by a script, on a free port of the loopback interface."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """``drip``: seconds before each byte of the body; ``hang``: seconds before anything."""

    content: str = "Good.\nScore: 10"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    hang: float = 0.0
    drip: float = 0.0
    usage: int | None = 5

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw.encode()
        reply: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": self.content}}]}
        return json.dumps(reply if self.usage is None else {**reply, "usage": {"total_tokens": self.usage}}).encode()


@dataclass
class Seen:
    """What came: bodies, headers, times, and the most requests that were open at once."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    open: int = 0
    most: int = 0

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][0]["content"] for body in self.bodies]


@contextmanager
def serving(respond: Callable[[int, dict[str, Any]], Reply]) -> Iterator[Seen]:
    """Answer the request number n, from 0, with ``respond(n, body)``."""
    seen, lock, closing = Seen(), threading.Lock(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(seen.bodies)
                seen.bodies.append(body)
                seen.headers.append({name.lower(): value for name, value in self.headers.items()})
                seen.times.append(time.monotonic())
                seen.open += 1
                seen.most = max(seen.most, seen.open)
            reply = respond(number, body) if self.path == "/v1/chat/completions" else Reply(status=404, raw="{}")
            closing.wait(reply.hang)
            with lock:
                seen.open -= 1
            self.send(reply)

        def send(self, reply: Reply) -> None:
            data = reply.body()
            try:
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(data)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                for at in range(0, len(data), 1 if reply.drip else len(data)):
                    closing.wait(reply.drip)
                    self.wfile.write(data[at : at + 1] if reply.drip else data)
            except OSError:
                return  # the client hung up

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    seen.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield seen
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
