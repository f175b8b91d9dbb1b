"""Each hostile program fails, leaves no process behind and leaves the sandbox in order."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hostile_programs import CHEATS, ESCAPES
from processes import left, running

from dare.sandbox.base import Limits, Outcome, Sandbox
from dare.sandbox.testing import passed_tests

TESTS = ["assert f(2) == 4", "assert f(3) == 9"]
RIGHT = "def f(x): return x * x"
SECONDS = 0.7
FIRST_SIZE = 33  # the size of the work area, different for each program, tells its processes apart


@dataclass
class Fate:
    passed: list[bool] | None
    outcome: Outcome | None
    left: list[str]
    afterwards: list[bool]


@pytest.fixture(scope="module")
def fates(bwrap: Sandbox) -> Iterator[dict[str, Future[Fate]]]:
    """Every program runs once, a few at a time; the tests below look at what became of each."""
    os.environ["DARE_CANARY"] = "1"
    sizes = {name: FIRST_SIZE + place for place, name in enumerate([*CHEATS, *ESCAPES])}
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(_fate, bwrap, name, size) for name, size in sizes.items()}
    del os.environ["DARE_CANARY"]


def _fate(sandbox: Sandbox, name: str, size: int) -> Fate:
    limits = Limits(seconds=SECONDS, memory_mb=256, disk_mb=size)
    passed = passed_tests(sandbox, [CHEATS[name]], TESTS, limits=limits) if name in CHEATS else None
    outcome = sandbox.run(ESCAPES[name], limits=limits) if name in ESCAPES else None
    return Fate(passed, outcome, left(size), passed_tests(sandbox, [RIGHT], TESTS))


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_does_not_pass(name: str, fates: dict[str, Future[Fate]]) -> None:
    fate = fates[name].result()
    assert fate.passed is not None and not all(fate.passed)
    assert fate.left == []
    assert fate.afterwards == [True, True]


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_held(name: str, fates: dict[str, Future[Fate]]) -> None:
    fate = fates[name].result()
    assert fate.outcome is not None and "escaped" not in fate.outcome.stdout
    assert fate.outcome.stdout == "held\n" or fate.outcome.status != "ok"
    assert fate.left == []
    assert fate.afterwards == [True, True]


@pytest.mark.parametrize("name", [name for name in CHEATS if "equal to everything" in name or "ANY" in name])
def test_what_the_judge_is_for(name: str, bwrap: Sandbox) -> None:
    """These would pass if the tests ran in the process of the program."""
    together = "\n".join([CHEATS[name], *TESTS, "print('passed')"])
    assert bwrap.run(together).stdout == "passed\n"


LIARS = {
    "number that subtracts to nothing": ("__sub__ = __rsub__ = lambda s, o: 0", "assert abs(f(2) - 4) < 1e-6"),
    "number near to everything": ("__sub__ = lambda s, o: s\n    __abs__ = __lt__ = lambda *a: 0", TESTS[0]),
    "number equal from the right": ("__eq__ = lambda s, o: True\n    __hash__ = lambda s: 4", "assert 4 == f(2)"),
    "member of everything": ("__eq__ = lambda s, o: True\n    __hash__ = lambda s: 4", "assert f(2) in {4, 5}"),
    "collection of everything": ("__contains__ = lambda s, o: True", "assert 4 in f(2)"),
    "order as it pleases": ("__lt__ = __gt__ = __le__ = __ge__ = lambda s, o: True", "assert 3 < f(2) < 5"),
    "float as it pleases": ("__float__ = __round__ = lambda *a: 4.0\n    __eq__ = lambda s, o: True", TESTS[0]),
    "context that swallows errors": (
        "__enter__ = lambda s: s\n    __exit__ = lambda *a: True",
        "with f(2) as found:\n    assert found == 4",
    ),
    "class that claims every instance": ("__instancecheck__ = lambda s, o: True", "assert isinstance(f(2), int)"),
    "function that is its own result": ("__call__ = lambda s, *a: s\n    __getattr__ = lambda s, n: s", TESTS[0]),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_result_that_lies_about_itself_does_not_pass(name: str, bwrap: Sandbox) -> None:
    methods, test = LIARS[name]
    program = f"class Liar:\n    {methods}\ndef f(x): return Liar()"
    assert passed_tests(bwrap, [program], [test]) == [False]


@pytest.mark.parametrize("name", ["home", "environment", "/etc/passwd", "/proc", "listen", "memory outside processes"])
def test_what_the_sandbox_is_for(name: str) -> None:
    """These do succeed where nothing holds them."""
    done = subprocess.run([sys.executable, "-c", ESCAPES[name]], capture_output=True, text=True, check=False)
    assert done.stdout == "escaped\n"


def test_processes_are_found_while_they_run(bwrap: Sandbox) -> None:
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(bwrap.run, "import time\ntime.sleep(9)", limits=Limits(seconds=3, disk_mb=31))
        time.sleep(1)
        assert running(31)
        assert outcome.result().status == "timeout"
    assert left(31) == []


def test_the_fork_bomb_is_bounded(bwrap: Sandbox) -> None:
    count = """
import os, time
made = 0
try:
    while os.fork():
        made += 1
    time.sleep(9)
except OSError:
    print(made)
"""
    assert bwrap.run(count, limits=Limits(processes=8)).stdout == "7\n"  # and the process itself
