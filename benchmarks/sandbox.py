"""Programs per second in the bubblewrap sandbox, by wall time and by CPU time.

python benchmarks/sandbox.py --programs 200 --threads 2
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dare.sandbox.base import open_sandbox
from dare.sandbox.testing import outputs_of, passed_tests

PROGRAM = "def f(x):\n    return sorted(x)"
TESTS = ["assert f([3, 1, 2]) == [1, 2, 3]", "assert f([]) == []", "assert f([1.5]) == [1.5]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    sandbox = open_sandbox("bwrap")
    measure("one run", lambda: sandbox.run("print(1)").stdout == "1\n", options)
    measure("three assertions", lambda: all(passed_tests(sandbox, [PROGRAM], TESTS)), options)
    inputs = [str(number) for number in range(10)]
    measure("ten inputs", lambda: None not in outputs(inputs), options)


def outputs(inputs: list[str]) -> list[str | None]:
    return outputs_of(open_sandbox("bwrap"), ["print(input())"], inputs, seconds=5, output_bytes=100, stop=True)


def measure(name: str, work: Callable[[], bool], options: argparse.Namespace) -> None:
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    with ThreadPoolExecutor(options.threads) as pool:
        assert all(pool.map(lambda _: work(), range(options.programs)))
    wall, cpu = time.perf_counter() - wall, sum(os.times()[:4]) - cpu
    rate, cost = options.programs / wall, 1000 * cpu / options.programs
    print(f"{name:18} {rate:6.1f} programs/s   {cost:5.1f} ms of CPU each, {1000 / cost:5.1f} per second and core")


if __name__ == "__main__":
    main()
