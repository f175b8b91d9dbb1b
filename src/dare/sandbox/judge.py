"""Run inside the sandbox: test a program that can neither see the tests nor touch the process that runs them.

The judge forks the process that will hold the program before it reads anything secret, makes itself unreadable, and
only then reads standard input: ``secret`` (printed before the program starts, and again before the verdict),
``sources`` (the program, the first that compiles), ``setup`` and ``tests`` (trusted), ``free`` (names the tests use and
do not bind, true for what is used like a module), ``entry`` (what a test calls ``candidate``) and ``seconds``. Test
code runs here and calls the program through ``Peer``, so it compares genuine builtins.
"""

import builtins
import contextlib
import json
import os
import signal
import sys
from types import ModuleType
from typing import Any

from dare.sandbox import arrays
from dare.sandbox.objects import OPERATIONS, Object, ObjectIterator
from dare.sandbox.peer import Peer

PR_SET_DUMPABLE = 4
_ALIASES = {"np": "numpy"}


class TimeUp(BaseException):
    """Not an ``Exception``, which a test may expect."""


def main() -> None:
    """Fork, hide, read, judge; the verdict is the last line of standard output."""
    peer = _start()
    _hide()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(0, encoding="utf-8") as given:
        task = json.load(given)
    os.write(1, f"\n{task['secret']}\n".encode())
    verdict = json.dumps(_judge(task, peer))
    os.write(1, f"{task['secret']}{verdict}\n".encode())
    os._exit(0)


def _start() -> Peer:
    (from_judge, to_program), (from_program, to_judge) = os.pipe(), os.pipe()
    if os.fork():
        os.close(from_judge)
        os.close(to_judge)
        return Peer(from_program, to_program, kinds=(Object, ObjectIterator))
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
        super().__init__(read, write, offers={"load": self._load, "get": self._get, "operate": self._operate})
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

    def _operate(self, message: dict[str, Any]) -> Any:
        return OPERATIONS[message["name"]](*self.own(message))


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
    for name, like_module in _wanted(task["free"], names, bool(task["entry"])).items():
        names.update((like_module and _import(name)) or _borrow(name, peer) or _import(name))
    return names


def _wanted(free: dict[str, bool], names: dict[str, Any], has_entry: bool) -> dict[str, bool]:
    """The free names that nothing here defines.

    A builtin is the program's only if it has the name of the function under test, the only one that the tests call.
    """
    missing = {name: like_module for name, like_module in free.items() if name not in names}
    foreign = {name: like_module for name, like_module in missing.items() if not hasattr(builtins, name)}
    return foreign if foreign or has_entry or len(missing) > 1 else missing


def _borrow(name: str, peer: Peer) -> dict[str, Any]:
    try:
        return {name: peer.value("get", name=name)}
    except NameError:
        return {}


def _import(name: str) -> dict[str, Any]:
    return {name: __import__(_ALIASES.get(name, name))} if name in sys.stdlib_module_names or name in _ALIASES else {}


if __name__ == "__main__":
    main()
