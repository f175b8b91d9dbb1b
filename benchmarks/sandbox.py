"""Programs per second in the bubblewrap sandbox, one and two at once: median, slowest and fastest of several rounds.

python benchmarks/sandbox.py --programs 40 --rounds 5
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dare.rewards.code import humaneval, mbpp, unit_tests
from dare.sandbox.base import open_sandbox

SQUARE = "```python\ndef f(x):\n    return x * x\n```"
PROMPT = '''from typing import List


def has_close_elements(numbers: List[float], threshold: float) -> bool:
    """ Check if in given list of numbers, are any two numbers closer to each other than given threshold. """
'''
CLOSE = """```python
from typing import List

def has_close_elements(numbers: List[float], threshold: float) -> bool:
    ordered = sorted(numbers)
    return any(b - a < threshold for a, b in zip(ordered, ordered[1:]))
```"""
CHECK = """
def check(candidate):
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.3) == True
    assert candidate([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.05) == False
    assert candidate([1.0, 2.0, 5.9, 4.0, 5.0], 0.95) == True
    assert candidate([1.0, 2.0, 5.9, 4.0, 5.0], 0.8) == False
    assert candidate([1.0, 2.0, 3.0, 4.0, 5.0, 2.0], 0.1) == True
    assert candidate([1.1, 2.2, 3.1, 4.1, 5.1], 1.0) == True
    assert candidate([1.1, 2.2, 3.1, 4.1, 5.1], 0.5) == False
"""
TABLE = {"inputs": [str(number) for number in range(10)], "outputs": [str(number) for number in range(10)]}
WORK: dict[str, Callable[[], bool]] = {
    "trivial program": lambda: open_sandbox("bwrap").run("print(1)").stdout == "1\n",
    "mbpp, 3 assertions": lambda: mbpp(SQUARE, ground_truth=[f"assert f({x}) == {x * x}" for x in range(3)]) == 1,
    "humaneval, 7 calls": lambda: humaneval(CLOSE, ground_truth=CHECK, prompt=PROMPT) == 1,
    "unit_tests, 10 inputs": lambda: unit_tests("print(input())", ground_truth=TABLE) == 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; programs/s: median (slowest to fastest round)")
    for name, work in WORK.items():
        rates = [measure(work, at_once, options.programs, options.rounds) for at_once in (1, 2)]
        print(f"{name:22} 1 at once {shown(rates[0])}   2 at once {shown(rates[1])}")


def measure(work: Callable[[], bool], at_once: int, programs: int, rounds: int) -> list[float]:
    return [_rate(work, at_once, programs) for _ in range(rounds)]


def _rate(work: Callable[[], bool], at_once: int, programs: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        if not all(pool.map(lambda _: work(), range(programs))):
            raise SystemExit("a program that is right did not pass; the figures would mean nothing")
    return programs / (time.perf_counter() - start)


def shown(rates: list[float]) -> str:
    return f"{statistics.median(rates):5.1f} ({min(rates):.1f} to {max(rates):.1f})"


if __name__ == "__main__":
    main()
