"""Examples to token ids, and what becomes of those that are too long."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from dare.data.config import Split, TaskConfig
from dare.data.items import Item
from dare.data.shapes import RENDERED
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.models.chat import encode_conversation, encode_prompt
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example

DECODED = "decoded_ids"
"""The column of a rollout file that holds the answer's tokens and what followed them."""


def encode(
    tokenizer: PreTrainedTokenizerBase, example: Example, spec: ModelSpec, answers: bool
) -> tuple[list[int], list[int]]:
    """Return the ids of prompt and answer, the answer with its end-of-turn token but without EOS.

    An answer that was decoded by a model (``decoded_ids``) keeps its tokens, which its text may not lead back to.
    """
    prompt_ids, answer_ids = tokenise(tokenizer, example if answers else replace(example, answer=None))
    if answers and DECODED in example.columns:
        return prompt_ids, [*takewhile(lambda token: token not in spec.eos_ids, example.columns[DECODED])]
    return prompt_ids, answer_ids[:-1] if answer_ids[-1:] == [spec.eos_ids[0]] else answer_ids


def tokenise(tokenizer: PreTrainedTokenizerBase, example: Example) -> tuple[list[int], list[int]]:
    """Return the ids of prompt and answer as the chat template renders them; no answer, no ids.

    A document and a pair of rendered texts are read as they are, without the template.
    """
    if example.answer is None:
        return encode_prompt(tokenizer, example.prompt), []
    if not example.prompt:
        return [], _plain(tokenizer, example.answer)
    if example.prompt[0]["role"] == RENDERED:
        return _plain(tokenizer, example.prompt[0]["content"]), _plain(tokenizer, example.answer)
    return encode_conversation(tokenizer, example.prompt, example.answer)


@dataclass(frozen=True)
class Limits:
    """Tokens that a prompt may have, and an answer with its EOS."""

    prompt: int
    answer: int

    @classmethod
    def of(cls, task: TaskConfig, spec: ModelSpec, response_tokens: int) -> "Limits":
        """What ``task.max_prompt_tokens``, the model's context and the room for a response leave."""
        return cls(min(task.max_prompt_tokens, spec.context - response_tokens), response_tokens)


def fit(items: Sequence[Item], task: TaskConfig, split: Split, limits: Limits) -> tuple[list[Item], int]:
    """Return the items that fit and how many of them were cut to fit; ``task.overlong`` says what happens to others.

    An answer that is cut fills its room to the last token and is not said to end there.
    """
    kept, cut = [], 0
    for item in _good(items, task):
        answer = max(len(item.answer_ids), len(item.rejected_ids))
        if len(item.prompt_ids) <= limits.prompt and answer + item.ends <= limits.answer:
            kept.append(item)
        elif task.overlong == "error":
            raise DareError(_too_long(task, split, item, answer, limits))
        elif task.overlong == "truncate_answer" and len(item.prompt_ids) <= limits.prompt:
            kept.append(replace(item, answer_ids=item.answer_ids[: limits.answer], ends=False))
            cut += 1
    return kept, cut


def _good(items: Sequence[Item], task: TaskConfig) -> Sequence[Item]:
    """The items that score as ``task.min_score`` asks."""
    if task.min_score is None:
        return items
    for item in items:
        if not isinstance(item.example.columns.get("score"), int | float):
            number = item.example.columns.get("row", item.index)
            raise DareError(
                f"task.min_score: row {number} has no number as score; leave min_score out or score the row"
            )
    return [item for item in items if item.example.columns["score"] >= task.min_score]


def need_rows(kept: Sequence[Item], found: int, task: TaskConfig, split: Split, limits: Limits) -> None:
    """Raise ``DareError`` where none of the ``found`` rows fits."""
    if not kept:
        raise DareError(
            f"task.{split}: none of {found} rows fits {limits.prompt} prompt and {limits.answer} response tokens; "
            "raise task.max_prompt_tokens or decoding.max_new_tokens"
        )


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _too_long(task: TaskConfig, split: str, item: Item, answer: int, limits: Limits) -> str:
    return (
        f"task.{split} row {item.index}: prompt of {len(item.prompt_ids)} tokens (limit {limits.prompt}) or answer of "
        f"{answer} tokens (limit {limits.answer - 1} and an end token); raise the limits or set task.overlong=drop"
    )
