"""Preference pairs: two answers to one prompt, the first of them chosen over the second.

A file's row has ``chosen`` and ``rejected`` and, in most sets, ``prompt``. Each is a text or a list of role/content
turns; an answer may repeat the prompt's turns, and without a ``prompt`` the turns that both share are it. Other columns
are left alone.
"""

from collections.abc import Mapping
from itertools import takewhile

from dare.data.config import Split, TaskConfig
from dare.data.digit_pairs import digit_sums_pairs
from dare.data.encode import Limits, encode
from dare.data.examples import Generate, Kind, read_names
from dare.data.items import Item, Items
from dare.data.loading import Loading
from dare.data.row import Row, Turns
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example

Pair = tuple[Example, Example]
"""The chosen and the rejected answer to the same prompt."""

PAIR_TASKS: Mapping[str, Generate[Pair]] = {"digit_sums_pairs": digit_sums_pairs}
"""The generated sets of pairs by name: pure functions of ``(count, seed, split)``."""


def load_pairs(
    task: TaskConfig, split: Split, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec, response_tokens: int
) -> Items:
    """Tokenise one split of pairs; a pair of which the prompt or one answer is too long is left out or refused.

    ``answer_ids`` of an item are the chosen answer, ``rejected_ids`` the other.
    """
    _check(task)

    def make(number: int, pair: Pair) -> Item:
        (prompt_ids, chosen_ids), (_, rejected_ids) = (encode(tokenizer, example, spec, True) for example in pair)
        return Item(number, pair[0], prompt_ids, chosen_ids, rejected_ids)

    return Loading(task, split, _PAIRS, make, tokenizer, spec, Limits.of(task, spec, response_tokens)).load()


def read_split(task: TaskConfig, split: Split) -> list[Pair]:
    """Read or generate one split; a plain word names an embedded set of pairs."""
    return read_names([name for names, _ in task.mixture(split) for name in names], task, split, _PAIRS)[0]


def pair_of(row: Row) -> Pair:
    """Return the pair of a row; ``RowError`` for one that lacks something or whose answers are the same."""
    prompt, chosen, rejected = _parts(row)
    if not prompt:
        problem, fix = "absent and the answers share no turn", "add a prompt column, or its turns to both"
        raise row.error("prompt", problem, fix)
    if chosen == rejected:
        raise row.error("rejected", "the same as chosen, so nothing is preferred", "remove the row")
    columns = {**row.struct("extra_info"), "data_source": row.fields.get("data_source"), "row": row.number}
    answers = row.answer("chosen", chosen), row.answer("rejected", rejected)
    return Example(prompt, columns, answers[0]), Example(prompt, columns, answers[1])


_PAIRS = Kind("set of pairs", PAIR_TASKS, lambda row: [pair_of(row)])


def _check(task: TaskConfig) -> None:
    """Refuse what has no meaning for pairs."""
    given = {
        "task.stream": task.stream,
        "task.pack": task.pack,
        "task.rendered": task.rendered,
        "task.overlong=truncate_answer": task.overlong == "truncate_answer",
    }
    for name in (name for name, value in given.items() if value):
        raise DareError(f"{name} does not go with pairs, whose two answers are compared whole; remove it")


def _parts(row: Row) -> tuple[Turns, Turns, Turns]:
    """Prompt, and both answers without it."""
    chosen, rejected = (row.turns_or_text(column, "assistant") for column in ("chosen", "rejected"))
    if row.fields.get("prompt") is None:
        both = takewhile(lambda turns: turns[0] == turns[1], zip(chosen, rejected, strict=False))
        prompt = tuple(turn for turn, _ in both)
    else:
        prompt = row.turns_or_text("prompt", "user")
    return prompt, _after(prompt, chosen), _after(prompt, rejected)


def _after(prompt: Turns, turns: Turns) -> Turns:
    return turns[len(prompt) :] if turns[: len(prompt)] == prompt else turns
