"""Values as JSON, so that a result is compared as a genuine builtin and never by a method its program wrote.

Plain values cross as themselves: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset,
dict and its views, deque, range, Decimal, Fraction, date, time, datetime, timedelta; subclasses such as enumerations of
ints and named tuples as the plain kind they extend. Anything else stays where it is and crosses as a number that stands
for it.
"""

from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

_SEQUENCES: dict[str, type] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}
_VIEWS = {"dict_keys": type({}.keys()), "dict_values": type({}.values()), "dict_items": type({}.items())}
_KINDS: dict[str, Any] = {**_SEQUENCES, **_VIEWS}
_TEXTS = {  # rare, of modules slow to import; read back from their ``str`` by this method, or by the class itself
    "decimal.Decimal": "",
    "fractions.Fraction": "",
    "datetime.date": "fromisoformat",
    "datetime.time": "fromisoformat",
    "datetime.datetime": "fromisoformat",
}
_EXACT = 1 << 63  # beyond this, decimal digits are slow and above 4300 of them refused


def pack(value: Any, keep: Callable[[Any], dict[str, Any]]) -> Any:
    """Return ``value`` as JSON; ``keep`` makes the object that stands for one that cannot cross."""
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return value + 0 if -_EXACT < value < _EXACT else {"t": "int", "v": hex(value)}
    if isinstance(value, list):
        return [pack(item, keep) for item in value]
    if isinstance(value, dict):
        return {"t": "dict", "v": [[pack(key, keep), pack(item, keep)] for key, item in value.items()]}
    for name, kind in _KINDS.items():
        if isinstance(value, kind):
            return {"t": name, "v": [pack(item, keep) for item in value]}
    return _scalar(value) or keep(value)


def _scalar(value: Any) -> dict[str, Any] | None:
    if isinstance(value, complex):
        return {"t": "complex", "v": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"t": "bytearray" if isinstance(value, bytearray) else "bytes", "v": value.decode("latin-1")}
    if isinstance(value, range):
        return {"t": "range", "v": [value.start, value.stop, value.step]}
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if name == "datetime.timedelta":
        return {"t": name, "v": [value.days, value.seconds, value.microseconds]}
    return {"t": name, "v": str(value)} if name in _TEXTS else None


def unpack(packed: Any, find: Callable[[str, Any], Any]) -> Any:
    """Return the value, built of builtins only; ``find`` returns what a number stands for, given its tag.

    Raises some ``Exception`` for what ``pack`` never wrote.
    """
    if isinstance(packed, list):
        return [unpack(item, find) for item in packed]
    if not isinstance(packed, dict):
        return packed
    tag, value = packed["t"], packed["v"]
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](unpack(item, find) for item in value)
    if tag == "dict":
        return {unpack(key, find): unpack(item, find) for key, item in value}
    if tag in _VIEWS:
        return _view(tag, [unpack(item, find) for item in value])
    return _read(tag, value) if tag in _TEXTS else _READERS[tag](value) if tag in _READERS else find(tag, value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "complex": lambda parts: complex(*parts),
    "bytes": lambda text: text.encode("latin-1"),
    "bytearray": lambda text: bytearray(text, "latin-1"),
    "range": lambda ends: range(*ends),
    "datetime.timedelta": lambda parts: import_module("datetime").timedelta(*parts),
}


def _view(tag: str, items: list[Any]) -> Any:
    if tag == "dict_keys":
        return dict.fromkeys(items).keys()
    return dict(enumerate(items)).values() if tag == "dict_values" else dict(items).items()


def _read(tag: str, text: str) -> Any:
    module, _, name = tag.partition(".")
    kind = getattr(import_module(module), name)
    return getattr(kind, _TEXTS[tag])(text) if _TEXTS[tag] else kind(text)
