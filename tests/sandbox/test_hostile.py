"""Each hostile program fails, leaves no process behind and leaves the sandbox in order."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_programs import CHEATS, ESCAPES

from dare.sandbox.base import MB, Limits, Outcome, Sandbox
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
    left = _left(f"--size\0{size * MB}\0")
    return Fate(passed, outcome, left, passed_tests(sandbox, [RIGHT], TESTS))


def _left(mark: str) -> list[str]:
    """Processes of the host whose command line holds ``mark``, after a moment for the kernel to clean up.

    Process 1 of the sandbox has it, and the kernel lets that go only after all others of its namespace.
    """
    for _ in range(100):
        found = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(path)]
        if not found:
            break
        time.sleep(0.02)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


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


@pytest.mark.parametrize("name", ["home", "environment", "/etc/passwd", "/proc", "listen", "memory outside processes"])
def test_what_the_sandbox_is_for(name: str) -> None:
    """These do succeed where nothing holds them."""
    done = subprocess.run([sys.executable, "-c", ESCAPES[name]], capture_output=True, text=True, check=False)
    assert done.stdout == "escaped\n"


def test_processes_are_found_while_they_run(bwrap: Sandbox) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bwrap.run, "import time\ntime.sleep(9)", limits=Limits(seconds=3, disk_mb=31))
        time.sleep(1)
        found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if f"--size\0{31 * MB}\0" in _read(path)]
        assert found
        assert running.result().status == "timeout"
    assert _left(f"--size\0{31 * MB}\0") == []


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
