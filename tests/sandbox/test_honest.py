"""Honest programs do in the sandbox what they do outside."""

import pytest

from dare.sandbox.base import Sandbox
from dare.sandbox.testing import outputs_of, passed_tests

READERS = {  # print the two words of the input, joined
    "input": "print(input() + input())",
    "input to its end": "r = ''\nwhile True:\n    try: r += input()\n    except EOFError: break\nprint(r)",
    "readline": "import sys\ninput = sys.stdin.readline\nprint(input().strip() + input().strip())",
    "readlines": "import sys\nprint(''.join(line.strip() for line in sys.stdin.readlines()))",
    "lines": "import sys\nprint(''.join(line.strip() for line in sys.stdin))",
    "read": "import sys\nprint(*sys.stdin.read().split(), sep='')",
    "buffer": "import sys\nprint(*sys.stdin.buffer.read().decode().split(), sep='')",
    "open(0)": "print(*open(0).read().split(), sep='')",
    "os.read": "import os\nprint(*os.read(0, os.fstat(0).st_size).decode().split(), sep='')",
    "fileinput": "import fileinput\nprint(''.join(line.strip() for line in fileinput.input()))",
}
WRITERS = {
    "main": "if __name__ == '__main__':\n    print(input() + input())",
    "sys.stdout": "import sys\nsys.stdout.write(input() + input())",
    "buffer": "import sys\nsys.stdout.buffer.write((input() + input()).encode())",
    "os.write": "import os\nos.write(1, (input() + input()).encode())",
    "open(1)": "print(input() + input(), file=open(1, 'w'))",
    "errors aside": "import sys\nprint('debug', file=sys.stderr)\nprint(input() + input())",
    "at exit": """
import atexit, io, sys
sys.stdout = io.StringIO()
atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))
print(input() + input())
""",
    "exit()": "print(input() + input())\nexit()",
    "quit(0)": "print(input() + input())\nquit(0)",
    "sys.exit": "import sys\nprint(input() + input())\nsys.exit()",
    "os._exit": "import os\nprint(input() + input(), flush=True)\nos._exit(0)",
    "large thread": """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 26)
def main(): print(input() + input())
threading.Thread(target=main).start()
""",
    "thread that is not waited for": """
import threading, time
def main():
    time.sleep(0.1)
    print(input() + input())
threading.Thread(target=main).start()
""",
    "pool": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: print(*pool.map(lambda _: input(), range(2)), sep='')
""",
    "asyncio": "import asyncio\nasync def main(): print(input() + input())\nasyncio.run(main())",
    "file": "open('x', 'w').write(input() + input())\nprint(open('x').read())",
    "process": """
import subprocess, sys
print(subprocess.run([sys.executable, '-c', 'print(input() + input())'], stdin=0, capture_output=True).stdout.decode())
""",
}
OUTPUTS = {
    "a megabyte": ("print('x' * 10**6)", "x" * 10**6),
    "many lines": ("for n in range(10**5): print(n)", "\n".join(map(str, range(10**5)))),
    "unicode": ("print('héllo 🙂 ж')", "héllo 🙂 ж"),
    "floats": ("print(0.1 + 0.2, 1e300 * 1e10)", "0.30000000000000004 inf"),
    "recursion": (
        "import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(5000))",
        "5000",
    ),
}
PROGRAM = """
import abc, array, asyncio, bisect, cmath, collections, copy, dataclasses, decimal, enum, fractions, functools, heapq
import hashlib, inspect, io, itertools, json, logging, math, multiprocessing, operator, queue, random, re, socket
import statistics, string, struct, subprocess, sys, textwrap, threading, time, typing, unicodedata, unittest
import datetime
sys.setrecursionlimit(10**5)
def deep(n): return n and 1 + deep(n - 1)
def loud(x): print('x' * 10**6); return x
def same(x): return x
def day(year): return datetime.date(year, 1, 1)
def later(moment): return moment + datetime.timedelta(hours=1)
def height(node): return 1 + max(height(node.left), height(node.right)) if node else 0
def first(items, key=None): return min(items, key=key) if key else items[0]
class Node:
    def __init__(self, data): self.data, self.left, self.right, self._hidden = data, None, None, 1
class Leaf(Node): pass
class Vector:
    def __init__(self, *x): self.x = list(x)
    def __eq__(self, other): return self.x == other.x
    def __add__(self, other): return Vector(*map(sum, zip(self.x, other.x)))
    def __len__(self): return len(self.x)
    def __bool__(self): return any(self.x)
    def __getitem__(self, n): return self.x[n]
    def __setitem__(self, n, value): self.x[n] = value
    def __iter__(self): return iter(self.x)
    def __str__(self): return f'<{self.x}>'
    def __enter__(self): return self
    def __exit__(self, *_): self.x.clear()
class Single:
    made = None
    def __new__(cls): cls.made = cls.made or super().__new__(cls); return cls.made
"""
TESTS = [
    "assert deep(5000) == 5000",
    "assert loud(1) == 1",
    "assert same('x' * 10**6) == 'x' * 10**6",
    "assert same((1, [None, {2.5}], {'a': (True,)})) == (1, [None, {2.5}], {'a': (True,)}) and same(None) is None",
    "import datetime\nassert day(2020) == datetime.date(2020, 1, 1) and day(2020).year == 2020",
    "import datetime as d\nassert later(d.datetime(2020, 1, 1, 2)) - d.datetime(2020, 1, 1) == d.timedelta(hours=3)",
    "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\nassert height(root) == 3 and root.left.data == 2",
    "assert isinstance(Leaf(1), Node) and not isinstance(Node(1), Leaf) and Node(1)._hidden == 1",
    "assert first([3, 1]) == 3 and first([3, 1], key=lambda item: item) == 1",
    "assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6) and Vector(1) != Vector(2) and [Vector(1)] == [Vector(1)]",
    "assert len(Vector(1, 2)) == 2 and not Vector(0) and Vector(1, 2)[1] == 2 and 2 in Vector(1, 2)",
    "v = Vector(1, 2)\nv[0] = 5\nassert list(v) == [5, 2] and str(v) == f'{v}' == '<[5, 2]>'",
    "with Vector(1) as v:\n    assert len(v) == 1\nassert len(v) == 0",
    "assert Single() is Single() and callable(same) and hasattr(Node(1), 'data') and not hasattr(Node(1), 'x')",
]


@pytest.mark.parametrize("program", [*READERS.values(), *WRITERS.values()], ids=[*READERS, *WRITERS])
def test_all_ways_to_read_and_write(program: str, bwrap: Sandbox) -> None:
    found = outputs_of(bwrap, [program], ["ab\ncd\n"], seconds=9, output_bytes=99, stop=True)
    assert [text and text.strip() for text in found] == ["abcd"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_arrive_whole(name: str, bwrap: Sandbox) -> None:
    program, expected = OUTPUTS[name]
    assert outputs_of(bwrap, [program], [""], seconds=9, output_bytes=2 << 20, stop=True) == [expected + "\n"]


def test_imports_recursion_values_and_classes(bwrap: Sandbox) -> None:
    passed = passed_tests(bwrap, [PROGRAM], TESTS)
    assert [test for test, good in zip(TESTS, passed, strict=True) if not good] == []
