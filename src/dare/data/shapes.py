"""The row shapes people have, told by their columns, and what each becomes: examples to learn from or to be graded on.

An SFT example has a worked answer and need not be gradable; an RL example is the other way round. A document of plain
text is an answer to an empty prompt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dare.data.config import TaskConfig
from dare.data.row import Row, RowError, Turns, roles
from dare.data.turns import answers_to_learn
from dare.errors import DareError
from dare.types import Example

_TURNS = ("prompt", "completion", "messages", "chosen", "rejected", "reward_model", "extra_info")
"""Columns that become the example's own turns, ground truth and further columns."""

Convert = Callable[[Row, TaskConfig], list[Example]]
"""The examples a row gives; ``RowError`` for one that lacks something."""

RENDERED = "rendered"
"""The role of a prompt that is in the chat template already (``task.rendered``)."""


@dataclass(frozen=True)
class Shape:
    """``columns`` that tell the shape; what rows give to ``learn`` from and to ``grade``, None where they cannot.

    ``texts`` tells that prompt and answer may be texts, so that ``task.rendered`` means something.
    """

    name: str
    columns: tuple[str, ...]
    learn: Convert | None = None
    grade: Convert | None = None
    texts: bool = False


def shape_of(row: Row, task: TaskConfig, answers: bool) -> Shape:
    """Return the shape of a source by its first row; ``answers`` asks for rows to learn from, else to grade."""
    shape = _asked_for(task, answers) or _found(row, answers)
    if task.rendered and not (answers and shape.texts):
        raise DareError(
            f"task.rendered is for texts with an answer; {row.source} has rows of shape {shape.name}, set it to false"
        )
    return shape


def first_shape(row: Row, task: TaskConfig) -> Shape:
    """Return the shape of a source by its first row, whatever its rows are for."""
    return _asked_for(task, task.answer_column is not None) or _fitting(row)[0]


def is_ungraded(row: Row) -> bool:
    """Tell whether a row in the release's shape has no ground truth; a run leaves such rows out."""
    return "reward_model" in row.fields and ground_truth(row) is None


def ground_truth(row: Row) -> Any:
    """Return what an answer is graded against, None where it is absent or blank."""
    truth = row.struct("reward_model").get("ground_truth", row.fields.get("ground_truth"))
    return None if isinstance(truth, str) and not truth.strip() else truth


def _asked_for(task: TaskConfig, answers: bool) -> Shape | None:
    if answers and task.question_column and not task.answer_column:
        raise DareError(f"task.question_column={task.question_column!r} names no answer; set task.answer_column too")
    if answers and task.answer_column:
        return Shape("columns", (), learn=_from_columns, texts=True)
    named = task.question_column or task.answer_column
    return Shape("question column", (), grade=_graded) if named and not answers else None


def _found(row: Row, answers: bool) -> Shape:
    fitting = _fitting(row)
    usable = [shape for shape in fitting if (shape.learn if answers else shape.grade)]
    if not usable:
        raise DareError(_unusable(row, fitting[0], answers))
    return usable[0]


def _fitting(row: Row) -> list[Shape]:
    fitting = [shape for shape in SHAPES if all(name in row.fields for name in shape.columns)]
    if not fitting:
        raise _unknown(row)
    # a prompt that stands beside an answer of any kind is no conversation that holds its answer
    return [shape for place, shape in enumerate(fitting) if place == 0 or shape.columns != ("prompt",)]


def _unknown(row: Row) -> RowError:
    known = " | ".join("+".join(shape.columns) for shape in SHAPES)
    fix = f"rename them ({known}) or set task.question_column and task.answer_column"
    return RowError(row.source, row.number, "", f"columns {', '.join(row.fields)} are of no known shape", fix)


def _unusable(row: Row, shape: Shape, answers: bool) -> str:
    found = f"{row.source} has rows of shape {shape.name}"
    if not answers:
        return (
            f"{found}, which no grader can judge; give rows with a prompt, data_source and reward_model.ground_truth, "
            "or set task.question_column, task.answer_column (the ground truth) and task.rewards"
        )
    if "chosen" in row.fields:
        return f"{found}; train on them with dare dpo, or on the better answers with task.answer_column=chosen"
    return f"{found}, which have no worked answer; set task.answer_column, or train on them with dare rl"


def columns_of(row: Row, **more: Any) -> dict[str, Any]:
    """The columns handed to reward functions: those of ``extra_info`` among the others."""
    plain = {name: value for name, value in row.fields.items() if name not in _TURNS}
    graded = {"data_source": row.fields.get("data_source"), "ground_truth": ground_truth(row)}
    return {**plain, **row.struct("extra_info"), **graded, **more, "row": row.number}


def _from_columns(row: Row, task: TaskConfig) -> list[Example]:
    assert task.answer_column is not None
    answer = row.text(task.answer_column)
    return [Example(_rendered(row, task) or _question(row, task), columns_of(row), answer)]


def _question(row: Row, task: TaskConfig) -> Turns:
    if task.question_column is None:
        return row.turns_or_text("prompt", "user")
    return _one("user", row.text(task.question_column))


def _rendered(row: Row, task: TaskConfig) -> Turns:
    return _one(RENDERED, row.text(task.question_column or "prompt")) if task.rendered else ()


def _graded(row: Row, task: TaskConfig) -> list[Example]:
    return [Example(_question(row, task), columns_of(row, **_graded_by(row, task)))]


def _graded_by(row: Row, task: TaskConfig) -> dict[str, Any]:
    """The columns a grader cannot do without; which they are is not known where the rewards are named."""
    if task.answer_column:
        return {"ground_truth": row.get(task.answer_column)}
    if task.rewards:
        return {}
    plain = "reward_model" not in row.fields and "ground_truth" in row.fields
    truth = row.get("ground_truth" if plain else "reward_model.ground_truth")
    return {"data_source": row.get("data_source"), "ground_truth": truth}


def _conversation(column: str) -> Convert:
    def convert(row: Row, task: TaskConfig) -> list[Example]:
        turns = row.turns(column)
        if len(turns) < 2 or turns[-1]["role"] != "assistant":
            fix = "end it with a question and its answer, or set task.answer_column"
            raise row.error(column, f"turns of {roles(turns)}", fix)
        places = answers_to_learn(turns, task.turns, task.seed, row.number)
        return [Example(turns[:place], columns_of(row), turns[place]["content"]) for place in places]

    return convert


def _answered(column: str) -> Convert:
    def convert(row: Row, task: TaskConfig) -> list[Example]:
        answer = row.answer(column, row.turns_or_text(column, "assistant"))
        return [Example(_rendered(row, task) or row.turns_or_text("prompt", "user"), columns_of(row), answer)]

    return convert


def _asked(row: Row, task: TaskConfig) -> list[Example]:
    truth = row.text("ground_truth_answer")
    return [Example(_one("user", row.text("question")), columns_of(row, ground_truth=truth))]


def _document(row: Row, task: TaskConfig) -> list[Example]:
    return [Example((), columns_of(row), row.text("text"))]


def _one(role: str, content: str) -> Turns:
    return ({"role": role, "content": content},)


SHAPES = (
    Shape("preference pairs", ("chosen", "rejected")),
    Shape("messages", ("messages",), learn=_conversation("messages")),
    Shape("prompt and completion", ("prompt", "completion"), learn=_answered("completion"), texts=True),
    Shape("prompt and response", ("prompt", "response"), learn=_answered("response"), texts=True),
    Shape("graded prompt", ("prompt", "reward_model"), learn=_conversation("prompt"), grade=_graded),
    Shape("conversation", ("prompt",), learn=_conversation("prompt"), grade=_graded),
    Shape("graded question", ("question", "ground_truth_answer"), grade=_asked),
    Shape("plain text", ("text",), learn=_document),
)
"""In the order in which they are tried."""
