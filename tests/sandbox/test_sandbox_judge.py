"""What crosses between a program and its tests, and what the tests make of it."""

import pytest

from dare.errors import DareError
from dare.sandbox.base import Limits, Sandbox
from dare.sandbox.testing import check_tests, outputs_of, passed_tests
from dare.sandbox.wire import pack, unpack

PROGRAM = """
import collections, decimal, enum, fractions, os
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def total(self): return self.a + self.b
class Kind(enum.IntEnum):
    ONE = 1
class Bad(ValueError): pass
SIZE = 3
def same(x): return x
def sort(x): x.sort()
def drain(x): x.clear(); return []
def squares(n): return (i * i for i in range(n))
def adder(a): return lambda b: a + b
def apply(f, items): return [f(item) for item in items]
def total(pairs): return sum(pair.a + pair.b for pair in pairs)
def one(): return Kind.ONE
def named(): return collections.namedtuple('P', 'a b')(1, 2)
def third(): return fractions.Fraction(1, 3), decimal.Decimal('0.1')
def bad(): raise Bad('no')
def leave(): raise SystemExit
def die(): os._exit(0)
def files(): return [fd for fd in range(64) if is_open(fd)]
def is_open(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False
"""
PASSING = [
    "x = {(1, 2): {3}, 'a': [None, 1.5, b'x'], 5: 2 ** 9999}; assert same(x) == x and same(x) is not x",
    "x = same(float('nan')); assert x != x",
    "assert same('\\ud800') == '\\ud800' and same(1j) == 1j and same(range(3)) == range(3)",
    "assert type(same(True)) is bool and type(same(1)) is int and type(same((1,))) is tuple",
    "assert list(squares(3)) == [0, 1, 4] and squares(3) != [0, 1, 4]",
    "endless = squares(10 ** 9); assert next(endless) == 0 and next(endless) == 1",
    "assert adder(1)(2) == 3",
    "assert apply(lambda item: item * 2, [1, 2]) == [2, 4] and apply(str, [1]) == ['1']",
    "assert total([Pair(1, 2), Pair(3, 4)]) == 10 and Pair(1, 2).a == 1 and Pair(1, 2).total() == 3",
    "assert Pair(1, 2) != Pair(1, 2) and same(adder) is not None",
    "assert one() == 1 and named() == (1, 2) and SIZE == 3",
    "assert [str(x) for x in third()] == ['1/3', '0.1']",
    "x = [3, 1]; sort(x); assert x == [1, 3]",
    "x = [3, 1]; assert drain(x) == [] and x == [3, 1]",
    "try:\n    bad()\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False",
    "assert math.isclose(same(1.0), 1.0)",
    "import numpy as np\nassert np.allclose(same([1.0, (2.0,)]), [1.0, [2.0]], atol=1e-6)",
    "assert len(files()) == 5",
]
FAILING = [
    "assert same(1) == 2",
    "raise SystemExit",
    "same(",
    "unknown()",
    "leave()",
    "assert same(adder) == 3",
    "assert np.allclose(same([1.0]), [1.0, 2.0])",
]
LAST = ["assert same(1) == 1", "try:\n    die()\nexcept BaseException:\n    pass", "assert same(1) == 1"]


def test_values_cross_as_they_are(bwrap: Sandbox) -> None:
    passed = passed_tests(bwrap, [PROGRAM], [*PASSING])
    assert [test for test, good in zip(PASSING, passed, strict=True) if not good] == []


def test_wrong_answers_fail_and_a_dead_program_stays_dead(bwrap: Sandbox) -> None:
    whole = [test for test in FAILING if test != "same("]
    assert passed_tests(bwrap, [PROGRAM], whole + LAST) == [False] * len(whole) + [True, False, False]


def test_the_first_source_that_compiles_is_run(bwrap: Sandbox) -> None:
    assert passed_tests(bwrap, ["def f(", "def f(): return 1", "def f(): return 2"], ["assert f() == 1"]) == [True]
    assert passed_tests(bwrap, ["def f("], ["assert f() == 1"]) == [False]


def test_a_builtin_is_the_programs_only_where_it_is_what_is_tested(bwrap: Sandbox) -> None:
    lies = "def sum(*a): return 0\ndef abs(x): return 0\ndef f(x): return 5"
    assert passed_tests(bwrap, [lies], ["assert sum(1, 2) == 0"]) == [True]
    assert passed_tests(bwrap, [lies], ["assert abs(f(1) - 1) < 1e-6"]) == [False]
    assert passed_tests(bwrap, [lies], ["assert abs(candidate(1) - 1) < 1e-6"], entry="f") == [False]


def test_helpers_of_the_setup_are_not_the_programs(bwrap: Sandbox) -> None:
    setup, lies = "def truth(x): return x + 1", "def truth(x): return 0\ndef f(x): return 0"
    assert passed_tests(bwrap, [lies], ["assert candidate(1) == truth(1)"], setup=setup, entry="f") == [False]


def test_tests_before_the_time_is_up_have_passed(bwrap: Sandbox) -> None:
    program = "def f(): return 1\ndef g():\n    while True: pass"
    tests = ["assert f() == 1", "try:\n    g()\nexcept Exception:\n    pass", "assert f() == 1"]
    assert passed_tests(bwrap, [program], tests, limits=Limits(seconds=0.5)) == [True, False, False]


def test_outputs(bwrap: Sandbox) -> None:
    program = """
n = int(input())
print(n * 2)
if n == 1: 1 / 0
if n == 2:
    while True: pass
if n == 3: print('x' * 5000)
if n == 4: raise SystemExit(0)
if n == 5:
    import os; os.close(1)
    while True: pass
"""
    asked = ["0\n", "1", "2", "3", "4", "5", ""]
    assert outputs_of(bwrap, ["(", program], asked, seconds=0.4, output_bytes=1000, stop=False) == (
        ["0\n", None, None, None, "8\n", None, None]
    )
    assert outputs_of(bwrap, [program], ["0", "1", "0"], seconds=1, output_bytes=99, stop=True) == ["0\n", None, None]
    assert outputs_of(bwrap, ["("], ["0"], seconds=1, output_bytes=99, stop=False) == [None]


def test_what_a_program_writes_instead_of_the_answers_is_no_answer(bwrap: Sandbox) -> None:
    forged = "import os\nos.write(1, b'{}\\n[[[\\n' * 9)\nos.close(1)"
    assert outputs_of(bwrap, [forged], ["", ""], seconds=1, output_bytes=99, stop=False) == ["{}\n[[[\n" * 9] * 2


def test_unreadable_values_are_refused() -> None:
    def refuse(*_: object) -> None:
        raise KeyError

    assert unpack(pack([{1: (2.5, {3})}], refuse), refuse) == [{1: (2.5, {3})}]
    for packed in ({"t": "set", "v": [[1]]}, {"t": "int", "v": 5}, {"t": "system", "v": 1}, {}, {"t": [], "v": 1}):
        with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
            unpack(packed, refuse)


def test_a_test_that_is_no_python_is_named() -> None:
    with pytest.raises(DareError, match="ground_truth has a test that is no Python"):
        check_tests("ground_truth", ["assert ("])
