"""No sandbox: a plain process with limits, for machines that hold nothing of value."""

import os
import sys
import tempfile
import warnings

from dare.sandbox.base import DEFAULT_LIMITS, Limits, Outcome
from dare.sandbox.process import python_command, supervise


class Unsafe:
    """Programs can read and delete the user's files, reach the network and leave processes behind."""

    def __init__(self) -> None:
        warnings.warn(
            "sandbox backend 'unsafe': programs written by the model run with your rights, files and network",
            stacklevel=2,
        )

    def run(self, program: str, *, stdin: str = "", limits: Limits = DEFAULT_LIMITS) -> Outcome:
        """Run ``program`` in an empty folder and environment, under all limits but ``disk_mb`` and ``processes``.

        The kernel counts processes per user, so that limit would count the user's own.
        """
        source = program.encode("utf-8", "replace")
        resources = {name: value for name, value in limits.resources().items() if name != "RLIMIT_NPROC"}
        command = python_command(sys.executable, source, resources)
        data = source + stdin.encode("utf-8", "replace")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return supervise(command, data, limits, environment={"PATH": os.defpath, "HOME": folder}, folder=folder)
