"""Who calls the sandbox: threads, several processes, and a process that is killed in the middle."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import left, running

from dare.sandbox.base import Sandbox
from dare.sandbox.testing import passed_tests

pytestmark = pytest.mark.usefixtures("bwrap")
SIZE = 29
SLEEP = "import os, time\\nif os.fork() == 0: os.setsid()\\nwhile True: time.sleep(1)"
CALLS = {
    "a program": f"sandbox.run('{SLEEP}', limits=limits)",
    "judged": f"passed_tests(sandbox, ['{SLEEP}'], ['f()'], limits=limits)",
    "judged from a thread": (
        f"ThreadPoolExecutor(1).submit(passed_tests, sandbox, ['{SLEEP}'], ['f()'], limits=limits).result()"
    ),
    "inputs": f"outputs_of(sandbox, ['{SLEEP}'], ['1'], seconds=60, output_bytes=9, stop=True, limits=limits)",
}
CALLER = """
from concurrent.futures import ThreadPoolExecutor
from dare.sandbox.base import Limits, open_sandbox
from dare.sandbox.testing import outputs_of, passed_tests
sandbox, limits = open_sandbox("bwrap"), Limits(seconds=60, disk_mb={size})
print({call})
"""


@pytest.mark.parametrize("name", CALLS)
def test_a_caller_that_is_killed_leaves_nothing_running(name: str) -> None:
    with subprocess.Popen([sys.executable, "-c", CALLER.format(size=SIZE, call=CALLS[name])]) as caller:
        while caller.poll() is None and not running(SIZE):
            time.sleep(0.05)
        time.sleep(0.3)
        found = running(SIZE)
        caller.kill()
    assert found
    assert left(SIZE) == []


def test_several_processes_and_threads_at_once(bwrap: Sandbox) -> None:
    call = "passed_tests(sandbox, ['def f(x): return x'] , ['assert f(1) == 1', 'assert f(1) == 2'], limits=limits)"
    command = [sys.executable, "-c", CALLER.format(size=SIZE, call=call)]
    callers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        tests = [f"assert f({number}) == {number}" for number in range(6)]
        programs = [f"def f(x): return {number}" for number in range(6)]
        found = list(pool.map(lambda program: passed_tests(bwrap, [program], tests), programs))
    assert found == [[row == column for column in range(6)] for row in range(6)]
    assert [caller.communicate()[0] for caller in callers] == ["[True, False]\n"] * 3
