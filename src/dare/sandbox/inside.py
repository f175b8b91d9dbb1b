"""Run inside the sandbox, as a script: limit this process, then become the program.

Argument: ``{"length": bytes of the program, "limits": {name in resource: value}}``. The program is the start of
standard input; what follows is left there for it.
"""

import builtins
import json
import os
import resource
import sys

READY = b"\x06ready\n"
"""Written first, so that the outside can tell a sandbox that failed from a program that failed."""


def read_exactly(count: int) -> bytes:
    """Read ``count`` bytes of standard input and not one more."""
    parts = []
    while count and (part := os.read(0, min(count, 1 << 16))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main() -> None:
    """Limit, announce and run; errors of the program go nowhere."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # what the sandbox was built with
    task = json.loads(sys.argv[1])
    program = read_exactly(task["length"])
    sys.argv = ["program.py"]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # what programs expect of ``site``, which is left out
    for name, value in task["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.write(1, READY)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
