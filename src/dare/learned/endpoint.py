"""A chat endpoint of OpenAI's kind, asked politely: limits, retries, a budget. Standard library only."""

import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from dare.errors import DareError

MAX_WAIT = 60.0
MAX_BYTES = 4_000_000
_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_REFUSED_FOR_GOOD = {301, 302, 303, 307, 308, 401, 402, 403, 404, 405}


class NoAnswerError(DareError):
    """One question without an answer: the budget is used up, or the endpoint fails or refuses this question."""


class _PassingError(Exception):
    """A failure that may pass; ``wait`` is what the server asked for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None):
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Limits:
    """Seconds and numbers that bound the asking.

    ``timeout`` is one request's, connection included; ``patience`` one question's, with all retries and the waits
    between them. ``per_minute`` spaces the requests evenly. ``max_calls`` counts requests, failed ones too;
    ``max_tokens`` those that the answers report, and requests under way may take it over the limit.
    """

    retries: int = 4
    timeout: float = 60.0
    patience: float = 300.0
    per_minute: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        lowest = {
            "retries": 0,
            "timeout": 0.001,
            "patience": 0.001,
            "per_minute": 0.001,
            "max_calls": 1,
            "max_tokens": 1,
        }
        for name, least in lowest.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise DareError(f"{name}={value}; write a number from {least} up")


class Endpoint:
    """Asks ``url``; ``calls`` and ``tokens`` count what was spent. Every failure is a ``DareError``.

    The API key is read from the environment variable ``key_env`` at each request, sent to this host alone (redirects
    are not followed) and blotted out of every text that comes back.
    """

    def __init__(self, url: str, key_env: str | None, limits: Limits):
        secure, self._host, self._port, path, query = _address(url)
        self._kind = HTTPSConnection if secure else HTTPConnection
        whole = path.endswith("/chat/completions")
        path = path if whole else path.removesuffix("/v1") + "/v1/chat/completions"
        self.target = f"{path}?{query}" if query else path
        self.name = f"http{'s' * secure}://{self._host}{f':{self._port}' if self._port else ''}{path}"
        self.key_env, self.limits = key_env, limits
        self.calls = self.tokens = 0
        self._lock, self._next = threading.Lock(), 0.0

    def ask(self, body: dict[str, Any], stop: threading.Event) -> str:
        """Return the text of the answer; ``stop`` ends every wait at once. Raises ``NoAnswerError``."""
        key, waits, reason = self._key(), 0.0, ""
        for attempt in range(self.limits.retries + 1):
            self._take_turn(stop)
            started = time.monotonic()
            try:
                return self._once(body, key, min(self.limits.timeout, self.limits.patience - waits))
            except _PassingError as error:
                reason = str(error)
                # full jitter, so that questions that failed together do not return together
                pause = random.uniform(0.5, 1.0) * min(MAX_WAIT, 2.0**attempt) if error.wait is None else error.wait
            waits += time.monotonic() - started + pause
            if attempt == self.limits.retries or waits >= self.limits.patience:
                break
            if stop.wait(pause):
                break
        raise NoAnswerError(
            f"judge {self.name} gives no answer ({reason}); look at the server, or raise retries or patience"
        )

    def _key(self) -> str:
        if self.key_env is None:
            return ""
        key = os.environ.get(self.key_env, "").strip()
        if not key or not (key.isascii() and key.isprintable()):
            raise DareError(f"judge: environment variable {self.key_env} holds no API key; export it")
        return key

    def _take_turn(self, stop: threading.Event) -> None:
        """Count a request against the budget, then wait for its place in the row of requests."""
        with self._lock:
            for name, used in (("max_calls", self.calls), ("max_tokens", self.tokens)):
                most = getattr(self.limits, name)
                if most is not None and used >= most:
                    raise NoAnswerError(f"judge: the budget {name}={most} is used up; raise it")
            if stop.is_set():
                raise NoAnswerError("judge: stopped")
            self.calls += 1
            turn = max(self._next, time.monotonic())
            self._next = turn + (60 / self.limits.per_minute if self.limits.per_minute else 0)
        if stop.wait(turn - time.monotonic()):
            raise NoAnswerError("judge: stopped")

    def _once(self, body: dict[str, Any], key: str, timeout: float) -> str:
        status, headers, content = self._exchange(body, key, timeout)
        text = content.decode(errors="replace")
        text = text.replace(key, "***") if key else text
        if status in _RETRIED:
            raise _PassingError(f"status {status}: {_reason(text)}", _seconds(headers.get("retry-after")))
        if status >= 300:
            kind = DareError if status in _REFUSED_FOR_GOOD else NoAnswerError
            raise kind(f"judge {self.name} answers {status}: {_reason(text)}")
        try:
            reply = json.loads(text)
            answer = reply["choices"][0]["message"]["content"] or ""
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise _PassingError(f"not the answer of a chat endpoint: {text[:80]!r}") from error
        self._count(reply)
        return str(answer)

    def _count(self, reply: dict[str, Any]) -> None:
        usage = reply.get("usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        if self.limits.max_tokens is not None and not isinstance(total, int):
            raise DareError(f"judge {self.name} does not report its tokens; bound max_calls in place of max_tokens")
        with self._lock:
            self.tokens += total if isinstance(total, int) else 0

    def _exchange(self, body: dict[str, Any], key: str, timeout: float) -> tuple[int, dict[str, str], bytes]:
        """One request; a watchdog ends it after ``timeout`` seconds, also when the server sends a byte now and then."""
        connection = self._kind(self._host, self._port, timeout=timeout)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        late = threading.Event()
        try:
            connection.connect()
            with _watched(connection.sock, timeout, late):
                connection.request("POST", self.target, json.dumps(body).encode(), headers)
                response = connection.getresponse()
                content = response.read(MAX_BYTES)
            if late.is_set():
                raise TimeoutError
            return response.status, {name.lower(): value for name, value in response.getheaders()}, content
        except (OSError, HTTPException) as error:
            slow = late.is_set() or isinstance(error, TimeoutError)
            raise _PassingError(f"no answer within {timeout:g} s" if slow else type(error).__name__) from error
        finally:
            connection.close()


def _address(url: str) -> tuple[bool, str, int | None, str, str]:
    """Whether it is https, host, port, path and query; the message names no part of a URL that may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc or not url.isascii():
        raise DareError("judge: url must be http://HOST:PORT/v1 or https://…, without a user name or a password")
    return parts.scheme == "https", host, port, parts.path.rstrip("/"), parts.query


@contextmanager
def _watched(sock: socket.socket, timeout: float, late: threading.Event) -> Iterator[None]:
    """Cut the connection after ``timeout`` seconds and set ``late``."""

    def hang_up() -> None:
        late.set()
        with suppress(OSError):  # it may end in this very moment
            # the method of the plain socket: TLS would wait for the other side
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    watchdog = threading.Timer(timeout, hang_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _seconds(retry_after: str | None) -> float | None:
    """The wait that a Retry-After header asks for, given as seconds or as a date."""
    if retry_after is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _reason(text: str) -> str:
    """The reason in an error body: ``error.message``, or the body's beginning."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = text
    return str(message)[:200]
