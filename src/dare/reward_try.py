"""``dare reward try``: what a reward gives the rows of a file."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dare.data.config import TaskConfig
from dare.data.opened import open_place
from dare.data.row import Row, RowError, checked
from dare.data.shapes import columns_of, first_shape
from dare.data.span import split_slice
from dare.data.tables import cut
from dare.errors import DareError
from dare.grading.choose import choose
from dare.grading.config import GradingConfig, RewardConfig
from dare.grading.interface import TRAJECTORY
from dare.grading.pool import Pool
from dare.reward_table import Tried, print_scores
from dare.traces.trace import Trace, spelled

COMPLETIONS = ("completion", "response", "output", "answer", "solution")
"""Columns that may hold what is to be graded, in the order in which they are looked for."""

SCORES = ("score", "reward")


def try_reward(
    name: str, file: str, options: Sequence[str], completion: str | None, score: str | None, show: int
) -> bool:
    """Grade every row and print the scores; return whether no reward failed and none disagrees with the file."""
    where, span = split_slice(file)
    rows = [checked(row) for row in cut(open_place(where, Path(), "train", stream=False), span, None).read()]
    if not rows:
        raise DareError(f"{file} has no rows; give a file with at least one")
    column = completion or _first(rows[0], COMPLETIONS)
    given = [(text := _completion(row, column), _columns(row, text)) for row in rows]
    with Pool(GradingConfig().workers, GradingConfig().memory_mb) as pool:
        readings = choose(name, _setting(options), GradingConfig(), pool.run).score(given)
    stored = score or _first(rows[0], SCORES)
    tried = [
        Tried(row.number, text, _number(row, stored), reading)
        for row, (text, _), reading in zip(rows, given, readings, strict=True)
    ]
    print_scores(name, column or "worked answer", stored, tried, show)
    return all(one.agrees and not one.reading.failure for one in tried)


def _first(row: Row, names: Sequence[str]) -> str | None:
    """The first of ``names`` among the columns, then in ``extra_info``."""
    inside = [f"extra_info.{name}" for name in names if name in row.struct("extra_info")]
    return next((name for name in names if name in row.fields), next(iter(inside), None))


def _completion(row: Row, column: str | None) -> str:
    if column is not None:
        return "" if row.fields.get(column, "?") in (None, "") else row.text(column)
    learn = first_shape(row, TaskConfig()).learn
    with suppress(RowError):
        if learn is not None:
            return learn(row, TaskConfig())[0].answer or ""
    fix = "name the column to grade with --completion"
    raise RowError(row.source, row.number, "", f"no column {' or '.join(COMPLETIONS)}", fix)


def _setting(options: Sequence[str]) -> RewardConfig:
    values = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise DareError(f"option {option!r}: write NAME=VALUE")
        values[key] = yaml.safe_load(value)
    try:
        return RewardConfig.model_validate(values)
    except ValidationError as error:
        raise DareError(f"options {' '.join(options)}: {error.errors()[0]['msg']}") from error


def _columns(row: Row, text: str) -> dict[str, Any]:
    """What a run hands over; a saved rollout brings its trajectory, other texts are taken as written word by word."""
    columns = {"prompt": _prompt(row), **columns_of(row)}
    if "writes" in row.fields or "given" in row.fields:
        trace = Trace.model_validate_json(json.dumps(row.fields))
        return {**columns, "ground_truth": trace.expected, TRAJECTORY: trace}
    return {**columns, TRAJECTORY: spelled(text)}


def _prompt(row: Row) -> Any:
    for name in ("prompt", "question"):
        if row.fields.get(name):
            return row.turns_or_text(name, "user")
    return ()


def _number(row: Row, column: str | None) -> float | None:
    value = row.fields.get(column) if column else None
    return float(value) if isinstance(value, int | float) else None
