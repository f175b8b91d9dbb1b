"""Read RL and SFT rows in the DARE / verl schema from .parquet and .jsonl files, without conversion.

A row has ``data_source``, ``prompt`` (a list of role/content turns), ``reward_model.ground_truth`` and any
``extra_info``. A dotted column such as ``extra_info.question`` names a field inside a struct. The prompt of an SFT row
may be a whole conversation, its last turn the assistant's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dare.data.turns import TurnPolicy, answers_to_learn
from dare.errors import DareError, nearest
from dare.types import Example


@dataclass(frozen=True)
class Row:
    """One row and where it stands, so that an error can name the file, the row and the column."""

    path: Path
    number: int
    fields: Mapping[str, Any]

    def get(self, column: str) -> Any:
        """Return the field at a dotted column; a missing, null or empty one raises ``DareError``."""
        value: Any = self.fields
        for part in column.split("."):
            if value is None:
                break
            if not isinstance(value, Mapping) or part not in value:
                raise self.missing(column)
            value = value[part]
        if value is None or (isinstance(value, str) and not value.strip()) or value == []:
            raise self.error(column, "null or empty; fill it in or remove the row")
        return value

    def struct(self, column: str) -> Mapping[str, Any]:
        """Return a top-level struct, empty where it is absent or null."""
        value = self.fields.get(column) or {}
        if not isinstance(value, Mapping):
            raise self.error(column, f"of type {type(value).__name__}; it must be a struct of named fields")
        return value

    def turns(self, column: str) -> tuple[dict[str, str], ...]:
        """Return a list of turns, each with a role and a content."""
        turns = self.get(column)
        if not isinstance(turns, list) or not all(_is_turn(turn) for turn in turns):
            raise self.error(column, "not a list of turns, each with a role and a content that is not empty")
        return tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)

    def text(self, column: str) -> str:
        """Return a text."""
        value = self.get(column)
        if not isinstance(value, str):
            raise self.error(column, f"of type {type(value).__name__}; it must be text")
        return value

    def error(self, column: str, problem: str) -> DareError:
        """Name file, row and column of a problem."""
        return DareError(f"{self.path} row {self.number}: {column} is {problem}")

    def missing(self, column: str) -> DareError:
        """Name the nearest column there is."""
        names = _columns(self.fields)
        hint = nearest(column, names)
        known = "" if hint.startswith("known") else f"; known: {', '.join(names)}"
        return DareError(f"{self.path} row {self.number}: no column {column!r}; {hint}{known}")


def read_examples(
    path: str | Path,
    *,
    answer_column: str | None = None,
    question_column: str | None = None,
    limit: int | None = None,
    drop_ungraded: bool = False,
    turns: TurnPolicy | None = None,
    seed: int = 0,
) -> list[Example]:
    """Read the first ``limit`` rows (all by default) of a .parquet or .jsonl file.

    ``columns`` of an example are ``data_source``, ``ground_truth``, every item of ``extra_info`` and ``row``, the
    0-based row in the file. ``question_column`` replaces the prompt by one user turn; ``answer_column`` sets the answer
    of an SFT row, for which ``data_source`` and ``ground_truth`` may be absent. ``drop_ungraded`` leaves out rows
    whose ground truth is null or empty. ``turns`` asks for SFT rows: without an ``answer_column`` each prompt is a
    conversation, whose answers are picked by this policy and ``seed``.

    Raises ``DareError`` for a missing, unreadable or empty file, a missing column, or an empty prompt, question, answer
    or ground truth, and a conversation that does not end in an answer.
    """
    rows = read_rows(Path(path), limit)
    if drop_ungraded:
        rows = [row for row in rows if _ground_truth(row) is not None]
    if not rows:
        raise DareError(f"{path} has no rows to use; give a file with at least one")
    if turns is not None and answer_column is None:
        return [example for row in rows for example in _conversation(row, turns, seed)]
    return [_example(row, question_column, answer_column) for row in rows]


def _example(row: Row, question_column: str | None, answer_column: str | None) -> Example:
    prompt = row.turns("prompt") if question_column is None else _turn(row, question_column)
    if answer_column is not None:
        return Example(prompt, _ungraded(row), row.text(answer_column))
    graded = {"data_source": row.get("data_source"), "ground_truth": row.get("reward_model.ground_truth")}
    return Example(prompt, {**row.struct("extra_info"), **graded, "row": row.number})


def _conversation(row: Row, policy: TurnPolicy, seed: int) -> list[Example]:
    turns = row.turns("prompt")
    if len(turns) < 2 or turns[-1]["role"] != "assistant":
        roles = ", ".join(turn["role"] for turn in turns)
        raise row.error("prompt", f"turns of {roles}; end it with a question and its answer, or set task.answer_column")
    places = answers_to_learn(turns, policy, seed, row.number)
    return [Example(turns[:place], _ungraded(row), turns[place]["content"]) for place in places]


def _ungraded(row: Row) -> dict[str, Any]:
    """Columns of a row that is not graded, so it may lack what a grader needs."""
    graded = {"data_source": row.fields.get("data_source"), "ground_truth": _ground_truth(row)}
    return {**row.struct("extra_info"), **graded, "row": row.number}


def _turn(row: Row, question_column: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": row.text(question_column)},)


def _is_turn(turn: Any) -> bool:
    values = [turn.get(key) for key in ("role", "content")] if isinstance(turn, Mapping) else [None]
    return all(isinstance(value, str) and value.strip() for value in values)


def _ground_truth(row: Row) -> Any:
    truth = row.struct("reward_model").get("ground_truth")
    return None if isinstance(truth, str) and not truth.strip() else truth


def _columns(fields: Mapping[str, Any]) -> list[str]:
    nested = {name: value for name, value in fields.items() if isinstance(value, Mapping)}
    return [*(n for n in fields if n not in nested), *(f"{n}.{key}" for n in nested for key in nested[n])]


def read_rows(path: Path, limit: int | None) -> list[Row]:
    """Read the first ``limit`` rows as they are."""
    return [Row(path, number, fields) for number, fields in enumerate(_read(path, limit))]


def _read(path: Path, limit: int | None) -> Sequence[Mapping[str, Any]]:
    readers = {".parquet": _read_parquet, ".jsonl": _read_jsonl}
    if path.suffix not in readers:
        raise DareError(f"{path} is of type {path.suffix or 'folder'!r}; give a .parquet or .jsonl file")
    if not path.is_file():
        raise DareError(f"{path} does not exist; {_near_file(path)}")
    try:
        return readers[path.suffix](path, limit)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DareError(f"{path} cannot be read as {path.suffix}: {str(error).splitlines()[0]}; replace it") from error


def _near_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"nor does its folder {path.parent}"
    files = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".parquet", ".jsonl")]
    return nearest(path.name, files) if files else "its folder has no .parquet or .jsonl file"


def _read_parquet(path: Path, limit: int | None) -> list[dict[str, Any]]:
    return pq.read_table(path).slice(0, limit).to_pylist()


def _read_jsonl(path: Path, limit: int | None) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice((line for line in file if line.strip()), limit)]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is not a JSON object")
    return rows
