"""The little of numpy that the tests of EvalPlus use, so that the sandbox need not hold numpy."""

from typing import Any


class ndarray:  # noqa: N801
    """No value is one: nothing in the sandbox makes arrays."""


class float32(float):  # noqa: N801
    """A number type for ``isinstance`` and ``==`` only."""


class float64(float):  # noqa: N801
    """A number type for ``isinstance`` and ``==`` only."""


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether ``|a - b| <= atol + rtol |b|`` for all elements of nested sequences; a single number meets each one."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(allclose(x, y, rtol, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, list | tuple):
        return all(allclose(x, b, rtol, atol) for x in a)
    if isinstance(b, list | tuple):
        return all(allclose(a, y, rtol, atol) for y in b)
    infinite = abs(a) == float("inf") or abs(b) == float("inf")
    return bool(a == b) if infinite else abs(a - b) <= atol + rtol * abs(b)
