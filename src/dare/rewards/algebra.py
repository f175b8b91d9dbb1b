"""Are two plain expressions equal? They are parsed, never executed, and handed to sympy as a tree."""

import ast
import re
from typing import Any

from dare.rewards.arithmetic import MAX_BITS, OPERATORS
from dare.rewards.optional import optional

_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|sqrt|pi|[a-z]|[-+*/^()]")


def equal(left: str, right: str) -> bool:
    """Whether sympy simplifies the difference to zero; False for text that is not an expression.

    Read are decimals, single letters as variables, ``pi``, ``sqrt(…)``, ``+ - * / ^``, parentheses and products without
    a sign, such as ``2x``. Powers of numbers beyond ``MAX_BITS`` bits are refused. Simplifying has no time limit.
    """
    try:
        difference = _tree(left) - _tree(right)
    except (ValueError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        return False
    return bool(optional("sympy").simplify(difference) == 0)


def _tree(text: str) -> Any:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise ValueError(f"not an expression: {text[:40]!r}")
    source = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        product = (before[-1:].isalnum() or before == ")") and before != "sqrt" and (token.isalpha() or token == "(")
        source += ("*" if product else "") + ("**" if token == "^" else token.lstrip("0") or "0")
    return _build(ast.parse(source, mode="eval").body, source)


def _build(node: ast.expr, source: str) -> Any:
    sympy = optional("sympy")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return sympy.Rational(ast.get_source_segment(source, node))
    if isinstance(node, ast.Name) and (node.id == "pi" or len(node.id) == 1):
        return sympy.pi if node.id == "pi" else sympy.Symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _build(node.operand, source)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        return sympy.sqrt(_build(node.args[0], source))
    if isinstance(node, ast.BinOp):
        operator = _power if isinstance(node.op, ast.Pow) else OPERATORS[type(node.op)]
        return operator(_build(node.left, source), _build(node.right, source))
    raise ValueError(f"{type(node).__name__} is not allowed in an expression")


def _power(base: Any, exponent: Any) -> Any:
    bits = max(abs(base.p), base.q).bit_length() if base.is_Rational else 1
    if exponent.is_Rational and bits * abs(exponent) > MAX_BITS:
        raise ValueError("a power too large to compute")
    return base**exponent
