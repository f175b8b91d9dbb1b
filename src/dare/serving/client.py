"""A small HTTP client for JSON servers: ours, SGLang, vLLM. Standard library only."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from dare.errors import DareError

_TRIES = 30


class Client:
    """Talks to the server at ``url`` (``http://HOST:PORT``, with or without ``/v1``).

    Every failure is a ``DareError`` that names the server: no answer within ``timeout`` seconds, a refusal in the
    server's own words, an answer that is not JSON. A full queue (429) is asked again, a second later each time.
    """

    def __init__(self, url: str, timeout: float = 3600.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DareError(f"server URL {url!r} is none; write http://HOST:PORT")
        self.url, self.timeout = url.rstrip("/").removesuffix("/v1"), timeout
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname, parts.port
        self.base = parts.path.rstrip("/").removesuffix("/v1")

    def get(self, path: str) -> Any:
        """Return the JSON at ``path``."""
        with self._ask("GET", path, None) as response:
            return self._parse(response.read())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON, return JSON."""
        with self._ask("POST", path, body) as response:
            return self._parse(response.read())

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the server-sent events of a streamed answer."""
        with self._ask("POST", path, {**body, "stream": True}) as response:
            for line in response:
                content = line.removeprefix(b"data:").strip()
                if content == b"[DONE]":
                    return
                if content:
                    event = self._parse(content)
                    if "error" in event:
                        raise DareError(f"{self.url}{path} failed: {_message(content)}")
                    yield event
        raise DareError(f"{self.url}{path} ended its stream half-way; look at the server")

    @contextmanager
    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Iterator[HTTPResponse]:
        kind = HTTPSConnection if self.secure else HTTPConnection
        for attempt in range(1, _TRIES + 1):
            connection = kind(self.host, self.port, timeout=self.timeout)
            try:
                content = None if body is None else json.dumps(body)
                connection.request(method, self.base + path, content, {"Content-Type": "application/json"})
                response = connection.getresponse()
                if response.status == 429 and attempt < _TRIES:
                    time.sleep(float(response.headers.get("Retry-After", 1)))
                    continue
                if response.status >= 400:
                    reason = _message(response.read())
                    raise DareError(f"{self.url}{path} answers {response.status} to {method}: {reason}")
                yield response
                return
            except (OSError, HTTPException) as error:
                raise DareError(f"{self.url} does not answer ({error}); start the server or correct the URL") from error
            finally:
                connection.close()

    def _parse(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError as error:
            raise DareError(f"{self.url} answers no JSON: {content[:80]!r}; is it the right server?") from error


def _message(content: bytes) -> str:
    """The reason in an error body: OpenAI's and SGLang's ``error.message``, vLLM's older ``message``, or the body."""
    try:
        body = json.loads(content)
    except ValueError:
        return content[:200].decode(errors="replace")
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)
