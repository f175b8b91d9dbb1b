"""Countdown: reach a target with every given number used exactly once.

The expression is parsed, never executed, and evaluated in exact fractions.
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from dare.errors import DareError
from dare.rewards.extract import last_tag

MAX_LENGTH = 200
FORMAT_CREDIT = 0.1
_ALPHABET = re.compile(r"[0-9+\-*/() ]+")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
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
    text = expression.strip()
    if len(text) > MAX_LENGTH or not _ALPHABET.fullmatch(text):
        raise ValueError(f"not an arithmetic expression: {text[:40]!r}")
    used: list[int] = []
    try:
        return _value(ast.parse(text, mode="eval").body, used), used
    except (SyntaxError, ZeroDivisionError, MemoryError, RecursionError) as error:
        raise ValueError(f"not an arithmetic expression: {text[:40]!r}") from error


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left = _value(node.left, used)
        return _OPERATORS[type(node.op)](left, _value(node.right, used))
    raise ValueError(f"{type(node).__name__} is not allowed in an arithmetic expression")


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
    solved = sorted(used) == _given(numbers) and value == _target(ground_truth)
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
    if sorted(used) != _given(numbers):
        return 0.0
    return 1.0 if value == _target(ground_truth) else FORMAT_CREDIT


def _given(numbers: str | Sequence[int]) -> list[int]:
    try:
        return sorted(int(n) for n in (json.loads(numbers) if isinstance(numbers, str) else numbers))
    except (ValueError, TypeError) as error:
        raise DareError(f"numbers is {numbers!r}; write a list of integers such as '[44, 19, 35]'") from error


def _target(ground_truth: str | int) -> int:
    try:
        return int(ground_truth)
    except (ValueError, TypeError) as error:
        raise DareError(f"ground_truth is {ground_truth!r}; a countdown target must be an integer") from error
