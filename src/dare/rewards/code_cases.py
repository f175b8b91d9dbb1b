"""The tests of a ``unit_tests`` row, and when the output of a program is the expected one."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dare.errors import DareError

TOLERANCE = 1e-6
"""Absolute, and relative to the expected number where that is above 1."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 100
_CALLS = """
from math import inf, nan

def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value

def _same(found, expected):
    found, expected = _plain(found), _plain(expected)
    return found == expected or (isinstance(expected, list) and len(expected) == 1 and found == expected[0])
"""
_FUNCTION = "_function_under_test"


@dataclass(frozen=True)
class Cases:
    """Standard inputs, and the output expected for each."""

    inputs: list[str]
    outputs: list[str]

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Assertions:
    """Statements that must not raise, after ``setup``; ``function`` is what those made from calls call."""

    tests: list[str]
    setup: str = ""
    function: str | None = None

    def __len__(self) -> int:
        return len(self.tests)

    def for_program(self, defined: Sequence[str]) -> list[str]:
        """Return the tests of a program that defines these names: LeetCode's are methods of ``Solution``."""
        if self.function is None:
            return self.tests
        method = self.function not in defined and "Solution" in defined
        name = f"Solution().{self.function}" if method else self.function
        return [test.replace(_FUNCTION, name, 1) for test in self.tests]


def unit_test_cases(truth: Any) -> Cases | Assertions:
    """Return the tests of a row; ``DareError`` for another form, or none."""
    if isinstance(truth, list) and truth and all(isinstance(test, str) for test in truth):
        return Assertions(truth)
    if isinstance(truth, list) and truth and all(isinstance(test, Mapping) for test in truth):
        names = {test.get("fn_name") for test in truth}
        truth = {
            "inputs": [test.get("input") for test in truth],
            "outputs": [test.get("output") for test in truth],
            "fn_name": names.pop() if len(names) == 1 else None,
        }
    if not _is_table(truth):
        raise DareError(
            f"ground_truth is {str(truth)[:80]!r}; a list of assertions is expected, or inputs and outputs, "
            "as many of the one as of the other and at least one"
        )
    if truth.get("fn_name"):
        return _calls(truth)
    return Cases([_text(value) for value in truth["inputs"]], [_text(value) for value in truth["outputs"]])


def matches(output: str, expected: str) -> bool:
    """Whether two outputs agree line by line and word by word; blank lines and spacing do not count.

    An expected decimal number (with a point or an exponent) is met within 1e-6, relative above 1; anything else, whole
    numbers included, is met by the same text only.
    """
    found, wanted = _lines(output), _lines(expected)
    return len(found) == len(wanted) and all(_same_words(*pair) for pair in zip(found, wanted, strict=True))


def _lines(text: str) -> list[list[str]]:
    return [words for line in text.splitlines() if (words := line.split())]


def _same_words(found: list[str], wanted: list[str]) -> bool:
    return found == wanted or (
        len(found) == len(wanted) and all(_same_word(*pair) for pair in zip(found, wanted, strict=True))
    )


def _same_word(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    if max(len(found), len(wanted)) > _LONGEST_NUMBER or not _DECIMAL.fullmatch(wanted) or not _NUMBER.fullmatch(found):
        return False
    target = float(wanted)
    return math.isfinite(target) and abs(float(found) - target) <= TOLERANCE * max(1.0, abs(target))


def _is_table(truth: Any) -> bool:
    if not isinstance(truth, Mapping):
        return False
    inputs, outputs = truth.get("inputs"), truth.get("outputs")
    return isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs) > 0


def _text(value: Any) -> str:
    return "\n".join(str(line) for line in value) if isinstance(value, list) else str(value)


def _calls(truth: Mapping[str, Any]) -> Assertions:
    """Calls as assertions; a list meets a tuple, and a list of one result meets that result (the rules of APPS)."""
    name = str(truth["fn_name"])
    if not name.isidentifier():
        raise DareError(f"fn_name is {name!r}; the name of a function is expected")
    pairs = zip(truth["inputs"], truth["outputs"], strict=True)
    tests = [f"assert _same({_FUNCTION}(*{_arguments(given)!r}), {_value(result)!r})" for given, result in pairs]
    return Assertions(tests, _CALLS, name)


def _arguments(given: Any) -> list[Any]:
    """A list of arguments, or a text with one argument in JSON on each line (LiveCodeBench)."""
    lines: Iterable[Any] = given.splitlines() if isinstance(given, str) else given
    return [_value(line) for line in lines] if isinstance(given, str) else list(lines)


def _value(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
