"""Test a program in a sandbox, by assertions or by inputs and outputs, so that the program cannot forge success."""

import ast
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from dare.errors import DareError
from dare.sandbox.base import DEFAULT_LIMITS, Limits, Sandbox

GRACE_SECONDS = 5.0
"""For the judge to start and to give its verdict, beyond the time of the tests; its own alarm comes before that."""

_MODULES = ("wire", "peer", "objects", "arrays")
_LOAD = """import sys, types
for name, source in {modules!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
"""


def passed_tests(
    sandbox: Sandbox,
    sources: Sequence[str],
    tests: Sequence[str],
    *,
    setup: str = "",
    entry: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[bool]:
    """Return for each test whether it ran to its end without an exception.

    ``sources`` are readings of the untrusted program, of which the first that compiles is taken. ``tests`` and
    ``setup``, which runs before them, are trusted Python. They see the program's functions by name, and the one called
    ``entry`` as ``candidate``, from another process than the program's; see ``judge.py``. All tests share
    ``limits.seconds``; those not reached have not passed. ``DareError``: the sandbox failed.
    """
    secret = secrets.token_hex(16)
    task: dict[str, Any] = {"secret": secret, "seconds": limits.seconds, "sources": list(sources), "entry": entry}
    task |= {"tests": list(tests), "setup": setup, "free": _free_names("\n".join(tests))}
    patient = replace(limits, seconds=limits.seconds + GRACE_SECONDS)
    outcome = sandbox.run(_judge(), stdin=json.dumps(task), limits=patient)
    _, *written = outcome.stdout.split(secret)
    if not written and outcome.status == "error":
        raise DareError("the sandbox failed before the program was started; is memory_mb too low for these tests?")
    verdict, whole, _ = written[1].partition("\n") if len(written) == 2 else ("", "", "")
    passed = json.loads(verdict) if whole else []
    return passed + [False] * (len(tests) - len(passed))


def outputs_of(
    sandbox: Sandbox,
    sources: Sequence[str],
    inputs: Sequence[str],
    *,
    seconds: float,
    output_bytes: int,
    stop: bool,
    limits: Limits = DEFAULT_LIMITS,
) -> list[str | None]:
    """Return what the program printed for each input; None for exit status other than 0, or a limit broken.

    ``seconds`` and ``output_bytes`` hold for each input, ``limits.seconds`` for all. ``stop`` ends at the first None.
    Inputs not reached are None.
    """
    task = {"sources": list(sources), "inputs": list(inputs), "stop": stop}
    task |= {"seconds": seconds, "output_bytes": output_bytes}
    roomy = replace(limits, output_bytes=(6 * output_bytes + 16) * max(len(inputs), 1))  # JSON may write \\uXXXX
    outcome = sandbox.run(_script("cases"), stdin=json.dumps(task), limits=roomy)
    found: list[str | None] = []
    for line in outcome.stdout.split("\n")[: len(inputs)]:
        found.append(_text(line))
    return found + [None] * (len(inputs) - len(found))


def _free_names(tests: str) -> dict[str, bool]:
    """Names that are used and never bound; True for what is used like a module."""
    nodes = list(ast.walk(ast.parse(tests)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    modules = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    return {name: name in modules for name in sorted(used - bound)}


def _text(line: str) -> str | None:
    """The program may write over what ``cases.py`` prints; that makes outputs wrong, never right."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


@cache
def _judge() -> str:
    modules = [(f"{__package__}.{name}", _script(name)) for name in _MODULES]
    package = [(__package__, "")]
    return _LOAD.format(modules=package + modules) + _script("judge")


def _script(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text("utf-8")


def check_tests(column: str, tests: Sequence[str]) -> None:
    """Raise ``DareError`` for tests that are no Python."""
    for test in tests:
        try:
            compile(test, column, "exec")
        except (SyntaxError, ValueError) as error:
            raise DareError(f"{column} has a test that is no Python ({error}): {test[:80]!r}") from error
