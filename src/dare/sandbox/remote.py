"""A sandbox server over HTTP that speaks the ``/run_code`` protocol of SandboxFusion (ByteDance, Apache-2.0).

Request, a JSON object: ``code``, ``language`` ("python"), ``stdin``, ``run_timeout`` (seconds), ``memory_limit_MB``.
Response: ``status`` ("Success", "Failed" for a program that failed, "SandboxError"), ``message``, and ``run_result``
with ``status`` ("Finished", "TimeLimitExceeded", "Error"), ``return_code``, ``stdout``, ``execution_time`` (seconds).
"""

import http.client
import json
import time
import urllib.request
from typing import Any

from dare.errors import DareError
from dare.sandbox.base import DEFAULT_LIMITS, Limits, Outcome, Status

WAIT_SECONDS = 30.0
"""How long an answer may take beyond the program's own time."""


class Remote:
    """``url`` is the whole address of the call, such as ``http://host:8080/run_code``.

    Isolation, and every limit but time, memory and output, is the server's.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise DareError(f"sandbox url is {url!r}; it must start with http:// or https://")
        self._url = url

    def run(self, program: str, *, stdin: str = "", limits: Limits = DEFAULT_LIMITS) -> Outcome:
        """Run ``program`` on the server; ``DareError`` when it cannot be reached or answers with an error."""
        started = time.monotonic()
        asked = {"code": program, "language": "python", "stdin": stdin, "run_timeout": limits.seconds}
        answer = self._post({**asked, "memory_limit_MB": limits.memory_mb}, limits)
        if answer is None:
            return Outcome("output_limit", "", time.monotonic() - started)
        result = answer.get("run_result")
        if answer.get("status") not in ("Success", "Failed") or not isinstance(result, dict):
            raise DareError(f"sandbox {self._url} failed: {str(answer.get('message') or answer)[:300]}")
        stdout = str(result.get("stdout") or "")
        return Outcome(_status(result, stdout, limits), stdout[: limits.output_bytes], time.monotonic() - started)

    def _post(self, body: dict[str, Any], limits: Limits) -> dict[str, Any] | None:
        """The answer; None if it is longer than the output may be."""
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        most = 8 * limits.output_bytes + 65536  # JSON may write a character as \uXXXX
        try:
            with urllib.request.urlopen(request, timeout=limits.seconds + WAIT_SECONDS) as response:
                text = response.read(most + 1)
            if len(text) > most:
                return None
            answer = json.loads(text)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise DareError(f"sandbox {self._url}: {error}; check that the server runs and the url is right") from error
        if not isinstance(answer, dict):
            raise DareError(f"sandbox {self._url} answered {str(answer)[:100]!r}; a JSON object is expected")
        return answer


def _status(result: dict[str, Any], stdout: str, limits: Limits) -> Status:
    if len(stdout) > limits.output_bytes:
        return "output_limit"
    if result.get("status") == "TimeLimitExceeded":
        return "timeout"
    return "ok" if result.get("return_code") == 0 else "error"
