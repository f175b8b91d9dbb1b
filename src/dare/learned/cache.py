"""Scores of a judge on the disk: equal questions are paid for once."""

import hashlib
import json
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from dare.errors import DareError


def question_key(*parts: Any) -> str:
    """Return the SHA-256 of what decides about a score: endpoint, whole request, scale. No API key is among them."""
    content = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


class Cache:
    """A JSON Lines file ``judge.jsonl`` that only grows: key, score and, to be read, the reply it was found in.

    ``folder`` None keeps the scores in memory. Several processes may write to one file. A line that a kill left
    half-written is ignored.
    """

    def __init__(self, folder: str | None):
        self.path = None if folder is None else Path(folder) / "judge.jsonl"
        self._lock = threading.Lock()

    def get(self, key: str) -> float | None:
        """Return the score stored for ``key``, or ``None``."""
        return self._known.get(key)

    def put(self, key: str, score: float, reply: str) -> None:
        """Store a score."""
        with self._lock:
            self._known[key] = score
            if self.path is not None:
                _append(self.path, {"key": key, "score": score, "reply": reply})

    @cached_property
    def _known(self) -> dict[str, float]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            with self.path.open("rb") as lines:
                return dict(filter(None, map(_entry, lines)))
        except OSError as error:
            raise DareError(f"cache {self.path} cannot be read ({error.strerror}); correct cache") from error


def _entry(line: bytes) -> tuple[str, float] | None:
    try:
        record = json.loads(line)
        return str(record["key"]), float(record["score"])
    except (ValueError, LookupError, TypeError):
        return None


def _append(path: Path, record: dict[str, Any]) -> None:
    """One write to a file opened for appending: lines of several processes do not mix."""
    # the first newline ends a line that a kill left half-written
    line = f"\n{json.dumps(record)}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        raise DareError(f"cache {path} cannot be written ({error.strerror}); free space or correct cache") from error
