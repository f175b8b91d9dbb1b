"""Tasks of the library Reasoning Gym (Stojanovski et al., 2025), graded by the library."""

import ast
import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dare.errors import DareError, nearest
from dare.rewards.extract import last_tag
from dare.rewards.guards import explosive
from dare.rewards.optional import optional

MAX_LENGTH = 20_000
EXPRESSION_MAX_LENGTH = 1000
GRIDS = ("arc_agi", "rearc")
"""Tasks that compare tuples, which JSON and Parquet give back as lists."""

_ARITHMETIC = re.compile(r"[0-9+\-*/().\s]+", re.ASCII)
_ALGEBRA = re.compile(
    r"(?:(?:sin|cos|tan|sec|csc|cot|a?sinh|a?cosh|a?tanh|asin|acos|atan|exp|log|ln|sqrt|pi|[a-zA-Z])(?![a-zA-Z_])"
    r"|[0-9]++(?:\.[0-9]*+)?+|[+\-*/()\s])++",
    re.ASCII,
)


def reasoning_gym(completion: str, *, entry: Any = None, source_dataset: str | None = None, **row: Any) -> float | None:
    """Return the score, from 0 to 1, that the task's own ``score_answer`` gives the last ``<answer>`` tag.

    Without a tag: ``None``; 0.0 for an answer that the task cannot grade. ``entry`` is what the library generated (a
    mapping or its JSON text); without it the columns ``question``, ``answer`` and ``metadata`` are. Some tasks give
    partial credit, even 0.01 for a wrong answer. Some execute the answer as Python: they get arithmetic, algebra or
    literals only, in which nothing can run, and anything else is 0.0. Raises ``DareError`` for an unknown task and for
    a row that the task cannot grade.
    """
    answer = last_tag(completion, "answer")
    if answer is None:
        return None
    known = _entry(entry if entry is not None else row)
    name = source_dataset or known["metadata"].get("source_dataset")
    if len(answer) > MAX_LENGTH or not EXECUTED.get(str(name), _anything)(answer):
        return 0.0
    return _score(str(name), answer, known)


def _score(name: str, answer: str, entry: dict[str, Any]) -> float:
    score_answer = _scorer(name)
    try:
        return float(score_answer(answer, entry))
    except Exception as error:
        _check_row(name, score_answer, entry, error)
        return 0.0


def _check_row(name: str, score_answer: Callable[..., float], entry: dict[str, Any], error: Exception) -> None:
    """Tell a bad answer from a bad row: a row on which even the stored answer cannot be graded raises ``DareError``."""
    try:
        score_answer(entry["answer"], entry)
    except Exception:
        raise DareError(
            f"entry of task {name!r} cannot be graded ({error!r}); store what the library generated"
        ) from error


@functools.cache
def _scorer(name: str) -> Callable[..., float]:
    library = optional("reasoning_gym")
    names = optional("reasoning_gym.factory").DATASETS
    if name not in names:
        raise DareError(f"source_dataset is {name!r}, which Reasoning Gym does not have; {nearest(name, names)}")
    return library.get_score_answer_fn(name)


def _entry(row: Any) -> dict[str, Any]:
    try:
        entry = dict(json.loads(row) if isinstance(row, str) else row)
        metadata = entry["metadata"]
        metadata = dict(json.loads(metadata) if isinstance(metadata, str) else metadata)
        if metadata.get("source_dataset") in GRIDS:
            metadata["output"] = tuple(map(tuple, metadata["output"]))
        return {"question": entry.get("question"), "answer": entry["answer"], "metadata": metadata}
    except (KeyError, TypeError, ValueError) as error:
        raise DareError(
            f"entry is {str(row)[:80]!r}; a row needs the answer and metadata that Reasoning Gym wrote"
        ) from error


def _anything(answer: str) -> bool:
    return True


def _arithmetic(answer: str) -> bool:
    return _expression(answer, _ARITHMETIC) and "**" not in answer


def _algebra(answer: str) -> bool:
    return _expression(answer, _ALGEBRA) and not explosive(answer)


def _expression(answer: str, allowed: re.Pattern[str]) -> bool:
    return len(answer) <= EXPRESSION_MAX_LENGTH and allowed.fullmatch(answer) is not None


def _literal(answer: str) -> bool:
    """Whether evaluating the text does nothing: it is a Python literal or no Python at all."""
    try:
        ast.literal_eval(answer)
    except SyntaxError:
        return True
    except (ValueError, TypeError, MemoryError, RecursionError):
        return re.fullmatch(r"[A-Za-z]+", answer) is not None
    return True


EXECUTED: Mapping[str, Callable[[str], bool]] = {
    "countdown": _arithmetic,
    "puzzle24": _arithmetic,
    "polynomial_multiplication": _algebra,
    "simple_integration": _algebra,
    "intermediate_integration": _algebra,
    "binary_matrix": _literal,
    "n_queens": _literal,
    "spiral_matrix": _literal,
    "string_insertion": _literal,
}
"""The tasks whose ``score_answer`` hands the answer to ``eval`` or sympy's parser -> what is let through."""
