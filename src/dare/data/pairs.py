"""Preference pairs: two answers to one prompt, the first of them chosen over the second.

A file's row has ``chosen`` and ``rejected`` and, in most sets, ``prompt``. Each is a text or a list of role/content
turns; an answer may repeat the prompt's turns, and without a ``prompt`` the turns that both share are it. Other columns
are left alone.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile

from dare.data.config import TaskConfig
from dare.data.digit_pairs import digit_sums_pairs
from dare.data.parquet import Row, read_rows
from dare.data.source import Item, Items, Split, encode, fitting
from dare.errors import DareError, nearest
from dare.models.base import ModelSpec
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example

Pair = tuple[Example, Example]
"""The chosen and the rejected answer to the same prompt."""

PAIR_TASKS: dict[str, Callable[[int, int, str], list[Pair]]] = {"digit_sums_pairs": digit_sums_pairs}
"""The generated sets of pairs by name: pure functions of ``(count, seed, split)``."""

_Turns = tuple[dict[str, str], ...]


def load_pairs(
    task: TaskConfig, split: Split, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec, response_tokens: int
) -> Items:
    """Tokenise one split of pairs; a pair of which the prompt or one answer is too long is left out or refused.

    ``answer_ids`` of an item are the chosen answer, ``rejected_ids`` the other.
    """
    items = [_item(number, pair, tokenizer, spec) for number, pair in enumerate(read_split(task, split))]
    return fitting(items, task, split, spec, response_tokens)


def read_split(task: TaskConfig, split: Split) -> list[Pair]:
    """Read or generate one split; a name without a file suffix is an embedded set of pairs."""
    source, count = task.source(split)
    if source in PAIR_TASKS:
        return PAIR_TASKS[source](count, task.seed, split)
    if "." not in source:
        raise DareError(
            f"task.{split}={source!r} is no embedded set of pairs ({nearest(source, PAIR_TASKS)}) and no .parquet or "
            ".jsonl file"
        )
    rows = read_rows(task.root / source, count)
    if not rows:
        raise DareError(f"{task.root / source} has no rows to use; give a file with at least one")
    return [_pair(row) for row in rows]


def _item(number: int, pair: Pair, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec) -> Item:
    (prompt_ids, chosen_ids), (_, rejected_ids) = (encode(tokenizer, example, spec, True) for example in pair)
    return Item(number, pair[0], prompt_ids, chosen_ids, rejected_ids)


def _pair(row: Row) -> Pair:
    prompt, chosen, rejected = _parts(row)
    if not prompt:
        raise row.error("prompt", "absent and the answers share no turn; add a prompt column, or its turns to both")
    if chosen == rejected:
        raise row.error("rejected", "the same as chosen, so nothing is preferred; remove the row")
    columns = {**row.struct("extra_info"), "data_source": row.fields.get("data_source"), "row": row.number}
    answers = _answer(row, "chosen", chosen), _answer(row, "rejected", rejected)
    return Example(prompt, columns, answers[0]), Example(prompt, columns, answers[1])


def _parts(row: Row) -> tuple[_Turns, _Turns, _Turns]:
    """Prompt, and both answers without it."""
    chosen, rejected = (_turns(row, column, "assistant") for column in ("chosen", "rejected"))
    if row.fields.get("prompt") is None:
        both = takewhile(lambda turns: turns[0] == turns[1], zip(chosen, rejected, strict=False))
        prompt = tuple(turn for turn, _ in both)
    else:
        prompt = _turns(row, "prompt", "user")
    return prompt, _after(prompt, chosen), _after(prompt, rejected)


def _turns(row: Row, column: str, role: str) -> _Turns:
    """A text is one turn of ``role``."""
    return ({"role": role, "content": row.text(column)},) if isinstance(row.get(column), str) else row.turns(column)


def _after(prompt: _Turns, turns: _Turns) -> _Turns:
    return turns[len(prompt) :] if turns[: len(prompt)] == prompt else turns


def _answer(row: Row, column: str, turns: Sequence[dict[str, str]]) -> str:
    if [turn["role"] for turn in turns] != ["assistant"]:
        roles = ", ".join(turn["role"] for turn in turns) or "none"
        raise row.error(column, f"turns of {roles} after the prompt; one assistant turn is expected, cut the others")
    return turns[0]["content"]
