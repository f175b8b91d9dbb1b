"""Countdown: reach a target with every given number used exactly once.

The expression is parsed, never executed, and evaluated in exact fractions.
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import last_tag

MAX_LENGTH = 200
PYTHON_MAX_LENGTH = 1000
MAX_BITS = 4096
FORMAT_CREDIT = 0.1
_ALPHABET = re.compile(r"[0-9+\-*/() ]+")
_PYTHON_ALPHABET = re.compile(r"[0-9+\-*/().\s]+", re.ASCII)

Operators = Mapping[type[ast.operator], Callable[[Any, Any], Any]]
OPERATORS: Operators = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str) -> tuple[Fraction, list[int]]:
    """Return the exact value of an expression and the integers in it, from left to right.

    Allowed are non-negative decimal integers, the binary operators ``+ - * /``, parentheses and spaces, in at most
    ``MAX_LENGTH`` characters. Anything else, division by zero included, raises ``ValueError``.
    """
    used: list[int] = []

    def integer(node: ast.expr) -> Fraction:
        if not isinstance(node, ast.Constant) or type(node.value) is not int:
            raise _refused(node)
        used.append(node.value)
        return Fraction(node.value)

    return _parsed(expression, _ALPHABET, MAX_LENGTH, OPERATORS, integer), used


def python_value(expression: str) -> Fraction:
    """Return the value that Python gives an expression: ``evaluate`` with signs, decimals, ``//`` and ``**`` besides.

    Over ``PYTHON_MAX_LENGTH`` characters, powers beyond ``MAX_BITS`` bits and all that Python refuses raise
    ``ValueError``.
    """

    def number(node: ast.expr) -> Fraction:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = _value(node.operand, operators, number)
            return -value if isinstance(node.op, ast.USub) else value
        if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float):
            raise _refused(node)
        return Fraction(node.value)

    operators = {**OPERATORS, ast.FloorDiv: _floor_division, ast.Pow: _power}
    return _parsed(expression, _PYTHON_ALPHABET, PYTHON_MAX_LENGTH, operators, number)


def _parsed(
    expression: str,
    alphabet: re.Pattern[str],
    max_length: int,
    operators: Operators,
    leaf: Callable[[ast.expr], Fraction],
) -> Fraction:
    text = expression.strip()
    if len(text) > max_length or not alphabet.fullmatch(text):
        raise ValueError(f"not an arithmetic expression: {text[:40]!r}")
    try:
        return _value(ast.parse(text, mode="eval").body, operators, leaf)
    except (SyntaxError, ArithmeticError, MemoryError, RecursionError) as error:
        raise ValueError(f"not an arithmetic expression: {text[:40]!r}") from error


def _value(node: ast.expr, operators: Operators, leaf: Callable[[ast.expr], Fraction]) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in operators:
        left = _value(node.left, operators, leaf)
        return operators[type(node.op)](left, _value(node.right, operators, leaf))
    return leaf(node)


def _refused(node: ast.expr) -> ValueError:
    return ValueError(f"{type(node).__name__} is not allowed in an arithmetic expression")


def _floor_division(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(left // right)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(abs(base.numerator), base.denominator).bit_length() * abs(exponent)
    if bits > MAX_BITS or (base < 0 and exponent.denominator != 1):
        raise ValueError("a power that is too large or not real")
    return Fraction(base**exponent)


def digit_sums(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    """Grade pairs such as ``4+9 2+5``: the share of pairs that add up to their sum in ``ground_truth``, in order.

    A completion that is not one pair of digits from 1 to 9 per sum is ``None``.
    """
    sums, pairs = ground_truth.split(), completion.split(" ")
    if len(pairs) != len(sums) or not all(re.fullmatch(r"[1-9]\+[1-9]", pair) for pair in pairs):
        return None
    return sum(int(pair[0]) + int(pair[2]) == int(total) for pair, total in zip(pairs, sums, strict=True)) / len(sums)


def countdown(completion: str, *, ground_truth: str | int, numbers: str | Sequence[int], **_: Any) -> float | None:
    """Grade the last ``<answer>`` tag: 1.0 if it uses each given number exactly once and equals the target, else 0.1.

    The 0.1 is the format credit of TinyZero, kept by the DARE release. Without an answer tag: ``None``.
    ``numbers`` is a list or its JSON text.
    """
    answer = last_tag(completion, "answer")
    if answer is None:
        return None
    try:
        value, used = evaluate(answer)
    except ValueError:
        return FORMAT_CREDIT
    solved = sorted(used) == given(numbers) and value == target(ground_truth)
    return 1.0 if solved else FORMAT_CREDIT


def countdown_plain(
    completion: str, *, ground_truth: str | int, numbers: str | Sequence[int], **_: Any
) -> float | None:
    """Grade a completion that is nothing but the expression; ``None`` if ``evaluate`` refuses it.

    1.0: the given numbers and the target; 0.1: the given numbers, another value; 0.0: other numbers.
    """
    try:
        value, used = evaluate(completion)
    except ValueError:
        return None
    if sorted(used) != given(numbers):
        return 0.0
    return 1.0 if value == target(ground_truth) else FORMAT_CREDIT


def given(numbers: str | Sequence[int]) -> list[int]:
    """Return the given numbers in order of size; ``DareError`` unless they are a list of integers or its JSON text."""
    try:
        return sorted(int(n) for n in (json.loads(numbers) if isinstance(numbers, str) else numbers))
    except (ValueError, TypeError) as error:
        raise DareError(f"numbers is {numbers!r}; write a list of integers such as '[44, 19, 35]'") from error


def target(ground_truth: str | int) -> int:
    """Return the target; ``DareError`` unless it is an integer or its text."""
    try:
        return int(ground_truth)
    except (ValueError, TypeError) as error:
        raise DareError(f"ground_truth is {ground_truth!r}; a countdown target must be an integer") from error
