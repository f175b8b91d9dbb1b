"""One row of a file or dataset, and errors that say where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dare.errors import DareError, nearest

Fields = Mapping[str, Any]
"""The columns of a row by name."""

Turns = tuple[dict[str, str], ...]
"""The turns of a chat, each with its ``role`` and its ``content``."""


class RowError(DareError):
    """A bad row: its ``source``, its ``row`` number there, from 0, and what is ``told``: field, problem and fix."""

    def __init__(self, source: str, row: int, field: str, problem: str, fix: str):
        super().__init__(f"{source} row {row}: {field}{' ' if field else ''}{problem}; {fix}")
        self.source, self.row, self.told = source, row, (field, problem, fix)


@dataclass(frozen=True)
class Row:
    """One row, the file or dataset it is in and its number there."""

    source: str
    number: int
    fields: Fields

    def get(self, column: str) -> Any:
        """Return the field at a dotted column; a missing, null or empty one raises ``RowError``."""
        value: Any = self.fields
        for part in column.split("."):
            if value is None:
                break
            if not isinstance(value, Mapping) or part not in value:
                raise self.missing(column)
            value = value[part]
        if value is None or (isinstance(value, str) and not value.strip()) or value == []:
            raise self.error(column, "null or empty", "fill it in or remove the row")
        return value

    def struct(self, column: str) -> Mapping[str, Any]:
        """Return a top-level struct, empty where it is absent or null."""
        value = self.fields.get(column) or {}
        if not isinstance(value, Mapping):
            raise self.error(column, f"of type {type(value).__name__}", "it must be a struct of named fields")
        return value

    def turns(self, column: str) -> Turns:
        """Return a list of turns."""
        turns = self.get(column)
        wrong = _wrong_turn(turns)
        if wrong:
            fix = "each has a role and a content that is text, not empty"
            raise self.error(column, f"not a list of turns ({wrong})", fix)
        return tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)

    def text(self, column: str) -> str:
        """Return a text."""
        value = self.get(column)
        if not isinstance(value, str):
            raise self.error(column, f"of type {type(value).__name__}", "it must be text")
        return value

    def turns_or_text(self, column: str, role: str) -> Turns:
        """Return a list of turns; a text is one turn of ``role``."""
        return (
            ({"role": role, "content": self.text(column)},) if isinstance(self.get(column), str) else self.turns(column)
        )

    def answer(self, column: str, turns: Turns) -> str:
        """Return the text of the one assistant turn that ``turns``, read from ``column``, must be."""
        if [turn["role"] for turn in turns] != ["assistant"]:
            fix = "one assistant turn is expected, cut the others"
            raise self.error(column, f"turns of {roles(turns) or 'none'} after the prompt", fix)
        return turns[0]["content"]

    def error(self, column: str, problem: str, fix: str) -> RowError:
        """Say what ``column`` is, and what to do about it."""
        return RowError(self.source, self.number, column, f"is {problem}", fix)

    def missing(self, column: str) -> RowError:
        """Name the nearest column there is."""
        names = _columns(self.fields)
        hint = nearest(column, names)
        known = "" if hint.startswith("known") else f"; known: {', '.join(names)}"
        return RowError(self.source, self.number, "", f"no column {column!r}", f"{hint}{known}")


def checked(row: Row | RowError) -> Row:
    """Return the row, or raise what is wrong with it."""
    if isinstance(row, RowError):
        raise row
    return row


def roles(turns: Turns) -> str:
    """Return the roles of a chat for an error message."""
    return ", ".join(turn["role"] for turn in turns)


def _wrong_turn(turns: Any) -> str:
    """What keeps ``turns`` from being a chat; nothing, if empty."""
    if not isinstance(turns, list):
        return f"it is of type {type(turns).__name__}"
    for place, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            return f"turn {place} is of type {type(turn).__name__}"
        for key in ("role", "content"):
            value = turn.get(key)
            if not isinstance(value, str) or not value.strip():
                return f"turn {place} has {'an empty' if isinstance(value, str) else 'no text as'} {key}"
    return ""


def _columns(fields: Fields) -> list[str]:
    nested = {name: value for name, value in fields.items() if isinstance(value, Mapping)}
    return [*(n for n in fields if n not in nested), *(f"{n}.{key}" for n in nested for key in nested[n])]
