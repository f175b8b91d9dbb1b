"""Two processes that call each other's functions over pipes, by value; neither trusts what it reads."""

import builtins
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dare.sandbox.wire import pack, unpack

MAX_MESSAGE = 64 << 20
_MAX_TEXT = 500
_CHANGEABLE = (list, dict, set)


class LostError(Exception):
    """The other process ended, or sent what cannot be read."""


class Far:
    """An object of the other process, to be called there."""

    _far: tuple["Peer", int]

    def __init__(self, peer: "Peer", number: int) -> None:
        self.__dict__["_far"] = (peer, number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it there."""
        peer, number = self._far
        return peer.call(number, args, kwargs)


class FarIterator(Far):
    """An iterator of the other process, advanced there one item at a time."""

    def __iter__(self) -> "FarIterator":
        return self

    def __next__(self) -> Any:
        peer, number = self._far
        return peer.value("next", object=number)


class Peer:
    """One end. ``offers`` are the requests it answers beyond calling, or advancing, what it has handed out itself.

    ``kinds`` are the classes of what stands here for an object, and for an iterator, of the other end.
    """

    def __init__(
        self,
        read: int,
        write: int,
        *,
        offers: Mapping[str, Callable[[dict[str, Any]], Any]] = MappingProxyType({}),
        kinds: tuple[type[Far], type[Far]] = (Far, FarIterator),
    ) -> None:
        self.lost = False
        self._read, self._write = read, write
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the identity of what is kept
        self._kinds = dict(zip(("mine", "iterator"), kinds, strict=True))
        self._found: dict[tuple[str, int], Far] = {}
        self._offers = {"call": self._called, "next": lambda m: next(self._own(m, Iterator)), **offers}

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an object there. If it returns None, as in-place functions do, changes of its arguments come back."""
        packed = {"args": [self._pack(arg) for arg in args], "kwargs": self._pack(kwargs)}
        reply = self.ask({"do": "call", "object": number, **packed})
        if reply["value"] is None:
            for own, changed in zip(args, reply.get("args") or (), strict=False):
                _replace(own, changed)
        return reply["value"]

    def operate(self, name: str, number: int, args: Iterable[Any]) -> Any:
        """Ask for an operation on an object there, by its name in ``objects.OPERATIONS``."""
        return self.value("operate", name=name, object=number, args=[self._pack(arg) for arg in args])

    def value(self, do: str, **about: Any) -> Any:
        """Ask for a value."""
        return self.ask({"do": do, **about})["value"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply, answering what the other end asks meanwhile.

        What it raised there is raised here, as the builtin ``Exception`` nearest to it. ``LostError`` when the
        other end is gone, now and ever after.
        """
        self._send(request)
        while "do" in (message := self._receive()):
            self._answer(message)
        if "error" in message:
            raise _exception(message)
        if "value" not in message:
            self.lost = True
            raise LostError("unreadable")
        try:
            return {name: unpack(message[name], self._find) for name in ("value", "args") if name in message}
        except Exception as error:
            self.lost = True
            raise LostError("unreadable") from error

    def serve(self) -> None:
        """Answer requests until the other end is gone."""
        while True:
            self._answer(self._receive())

    def own(self, message: dict[str, Any]) -> list[Any]:
        """Return the object of this process that a request is about, and the arguments that came with it."""
        return [self._own(message, object), *(unpack(arg, self._find) for arg in message["args"])]

    def _own(self, message: dict[str, Any], kind: type) -> Any:
        found = self._kept[message["object"]]
        if not isinstance(found, kind):
            raise TypeError(f"{type(found).__name__} is not what was asked for")
        return found

    def _answer(self, message: dict[str, Any]) -> None:
        try:
            reply = self._offers[message["do"]](message)
            reply = reply if message["do"] == "call" else {"value": self._pack(reply)}
        except BaseException as error:
            if self.lost:
                raise
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            reply = {"error": kinds[0], "text": str(error)[:_MAX_TEXT]}
        self._send(reply)

    def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        function, *args = self.own(message)
        value = self._pack(function(*args, **unpack(message["kwargs"], self._find)))
        changed = [self._pack(arg) if isinstance(arg, _CHANGEABLE) else None for arg in args] if value is None else None
        return {"value": value, "args": changed}

    def _pack(self, value: Any) -> Any:
        return pack(value, self._keep)

    def _keep(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Far) and value._far[0] is self:
            return {"t": "yours", "v": value._far[1]}
        number = self._numbers.setdefault(id(value), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        return {"t": "iterator" if isinstance(value, Iterator) else "mine", "v": number}

    def _find(self, tag: str, number: Any) -> Any:
        if tag == "yours":
            return self._kept[number]
        if (tag, number) not in self._found:
            self._found[tag, number] = self._kinds[tag](self, number)
        return self._found[tag, number]

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._guard(lambda: _write(self._write, len(data).to_bytes(8, "big") + data))

    def _receive(self) -> dict[str, Any]:
        message = self._guard(lambda: json.loads(_read(self._read, int.from_bytes(_read(self._read, 8), "big"))))
        if not isinstance(message, dict):
            self.lost = True
            raise LostError("unreadable")
        return message

    def _guard(self, work: Callable[[], Any]) -> Any:
        if self.lost:
            raise LostError("gone")
        try:
            return work()
        except Exception as error:
            self.lost = True
            raise LostError(str(error)) from error


def _replace(own: Any, changed: Any) -> None:
    if type(own) is not type(changed):
        return
    if isinstance(own, list):
        own[:] = changed
    elif isinstance(own, dict | set):
        own.clear()
        own.update(changed)


def _exception(message: dict[str, Any]) -> Exception:
    kind, text = getattr(builtins, str(message["error"]), None), str(message.get("text"))
    try:
        return kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(text)
    except TypeError:
        return RuntimeError(text)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _read(source: int, count: int) -> bytes:
    if count > MAX_MESSAGE:
        raise ValueError(f"a message of {count} bytes")
    parts = []
    while count:
        part = os.read(source, min(count, 1 << 20))
        if not part:
            raise EOFError("closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
