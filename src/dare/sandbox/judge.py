"""Run inside the sandbox: test a program that can neither see the tests nor touch the process that runs them.

The judge forks the process that will hold the program before it reads anything secret, makes itself unreadable, and
only then reads standard input: ``secret`` (printed before the verdict), ``sources`` (the program, the first that
compiles), ``setup`` and ``tests`` (trusted), ``entry`` (what a test calls ``candidate``) and ``seconds``.
Test code runs here and calls the program through ``Peer``, so it compares genuine builtins.
"""

import ast
import builtins
import contextlib
import json
import os
import signal
import sys
from types import ModuleType
from typing import Any

from dare.sandbox import arrays
from dare.sandbox.peer import Peer

PR_SET_DUMPABLE = 4


class TimeUp(BaseException):
    """Not an ``Exception``, which a test may expect."""


def main() -> None:
    """Fork, hide, read, judge; the verdict is one line of standard output."""
    peer = _start()
    _hide()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(0, encoding="utf-8") as given:
        task = json.load(given)
    verdict = json.dumps(_judge(task, peer))
    os.write(1, f"\n{task['secret']}{verdict}\n".encode())
    os._exit(0)


def _start() -> Peer:
    (from_judge, to_program), (from_program, to_judge) = os.pipe(), os.pipe()
    if os.fork():
        os.close(from_judge)
        os.close(to_judge)
        return Peer(from_program, to_program)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        for inherited in {nowhere, to_program, from_program}:
            os.close(inherited)
        _Program(from_judge, to_judge).serve()
    finally:
        os._exit(1)


class _Program(Peer):
    """The process of the program under test; everything in it belongs to the program once that has started."""

    def __init__(self, read: int, write: int) -> None:
        super().__init__(read, write, {"load": self._load, "get": self._get, "attribute": self._attribute})
        self._module = sys.modules["solution"] = ModuleType("solution")

    def _load(self, message: dict[str, Any]) -> None:
        for source in message["sources"]:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                code = compile(source, "solution.py", "exec")
                break
        exec(code, self._module.__dict__)  # unbound if none compiles: an error like any other

    def _get(self, message: dict[str, Any]) -> Any:
        if message["name"] not in self._module.__dict__:
            raise NameError(message["name"])
        return self._module.__dict__[message["name"]]

    def _attribute(self, message: dict[str, Any]) -> Any:
        return getattr(self.own(message), message["name"])


def _hide() -> None:
    """Refuse ptrace and ``/proc/PID/mem``, ``fd`` and the like to processes of the same user."""
    import ctypes  # after the fork: the program does not need it

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def _judge(task: dict[str, Any], peer: Peer) -> list[bool]:
    def time_up(*_: Any) -> None:
        peer.lost = True
        raise TimeUp

    passed: list[bool] = []
    try:
        signal.signal(signal.SIGALRM, time_up)
        signal.setitimer(signal.ITIMER_REAL, task["seconds"])
        names = _names(task, peer)
        for test in task["tests"]:
            passed.append(_passes(test, names, peer))
    except TimeUp:
        pass
    except Exception:  # the program did not load
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return passed


def _passes(test: str, names: dict[str, Any], peer: Peer) -> bool:
    try:
        exec(compile(test, "test.py", "exec"), names)
    except TimeUp:
        raise
    except BaseException:
        return False
    return not peer.lost  # a test that expects an exception must not pass for a process that died


def _names(task: dict[str, Any], peer: Peer) -> dict[str, Any]:
    """The globals of the tests, with what they use of the program."""
    sys.stdout = sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.modules.setdefault("numpy", arrays)
    names: dict[str, Any] = {"__name__": "test"}
    exec(compile(task["setup"], "setup.py", "exec"), names)
    peer.value("load", sources=task["sources"])
    if task["entry"]:
        names["candidate"] = peer.value("get", name=task["entry"])
    for name, import_first in _wanted("\n".join(task["tests"]), names, bool(task["entry"])).items():
        found = _import(name) if import_first else _borrow(name, peer) or _import(name)
        names.update(found)
    return names


def _wanted(tests: str, names: dict[str, Any], has_entry: bool) -> dict[str, bool]:
    """Names the tests use and nothing here defines; True for what is used like a module.

    A builtin is the program's only if it has the name of the function under test, the only one that the tests call.
    """
    nodes = list(ast.walk(ast.parse(tests)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    modules = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    free = used - bound - set(names)
    wanted = free - set(dir(builtins))
    if not wanted and not has_entry and len(free) == 1:
        wanted = free
    return {name: name in modules and name in sys.stdlib_module_names for name in sorted(wanted)}


def _borrow(name: str, peer: Peer) -> dict[str, Any]:
    try:
        return {name: peer.value("get", name=name)}
    except NameError:
        return {}


def _import(name: str) -> dict[str, Any]:
    return {name: __import__(name)} if name in sys.stdlib_module_names else {}


if __name__ == "__main__":
    main()
