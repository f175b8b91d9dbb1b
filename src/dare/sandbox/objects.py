"""Objects of the program as the tests see them, for tests of classes.

Everything that is asked of an object gives a value, which the test then compares as it compares any other. What would
relate an object to a value of the test is never asked: an object equals no such value, whatever its class says, and has
no arithmetic with one. Two objects of the program relate as the program says.
"""

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dare.sandbox.peer import Far

OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{operation.__name__: operation for operation in (getattr, setattr, len, bool, str, repr, iter)},
        **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "eq", "add", "sub", "mul")},
        "instance": lambda kind, value: isinstance(value, kind),
        "enter": lambda manager: type(manager).__enter__(manager),
        "exit": lambda manager, *_: type(manager).__exit__(manager, None, None, None),
    }
)
"""What the process of the program offers."""


def _there(name: str) -> Callable[..., Any]:
    def ask(self: Far, *args: Any) -> Any:
        return self._far[0].operate(name, self._far[1], args)

    return ask


def _between_two(name: str) -> Callable[..., Any]:
    def ask(self: Far, other: Any) -> Any:
        return self._far[0].operate(name, self._far[1], [other]) if isinstance(other, Far) else NotImplemented

    return ask


class Object(Far):
    """An object of the program: a function, a class, an instance."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _there("getattr")(self, name)

    def __hash__(self) -> int:
        return 0  # equal objects must hash alike, and only the program knows which are equal

    __eq__ = _between_two("eq")
    __add__, __sub__, __mul__ = _between_two("add"), _between_two("sub"), _between_two("mul")
    __getitem__, __setitem__, __delitem__ = _there("getitem"), _there("setitem"), _there("delitem")
    __setattr__, __instancecheck__ = _there("setattr"), _there("instance")
    __len__, __bool__, __str__, __repr__ = _there("len"), _there("bool"), _there("str"), _there("repr")
    __iter__, __enter__ = _there("iter"), _there("enter")

    def __exit__(self, *_: object) -> None:
        """Leave the context there; an exception of the test is the test's own, and goes on."""
        _there("exit")(self)


class ObjectIterator(Object):
    """An iterator of the program, advanced there one item at a time."""

    def __iter__(self) -> "ObjectIterator":
        return self

    def __next__(self) -> Any:
        return self._far[0].value("next", object=self._far[1])
