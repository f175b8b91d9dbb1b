"""From a task's settings to tokenised rows, and from rows to padded sequences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dare.data.config import TaskConfig
from dare.data.parquet import read_examples
from dare.data.tasks import TASKS
from dare.errors import DareError, nearest
from dare.models.base import ModelSpec
from dare.models.chat import encode_conversation, encode_prompt
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example, Sequences, pack

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Item:
    """A tokenised example; ``index`` is its number in the split and part of its noise key.

    ``answer_ids`` (SFT) end with the template's end-of-turn token where it has one, and without EOS; ``rejected_ids``
    (preference pairs) likewise.
    """

    index: int
    example: Example
    prompt_ids: list[int]
    answer_ids: list[int]
    rejected_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Items:
    """Rows that fit, and the number of rows left out because they were too long or had no ground truth."""

    rows: list[Item]
    dropped: int


def load_examples(task: TaskConfig, split: Split, answers: bool = False) -> list[Example]:
    """Read or generate one split; a name without a file suffix is an embedded task.

    With ``answers`` every example has a worked answer and need not be gradable; without, it is the other way round.
    """
    source, count = task.source(split)
    if source in TASKS:
        return TASKS[source](count, task.seed, split)
    if "." not in source:
        raise DareError(
            f"task.{split}={source!r} is no embedded task ({nearest(source, TASKS)}) and no .parquet or .jsonl file"
        )
    return read_examples(
        task.root / source,
        question_column=task.question_column,
        answer_column=task.answer_column,
        limit=count,
        drop_ungraded=not answers,
        turns=task.turns if answers else None,
        seed=task.seed,
    )


def load_items(
    task: TaskConfig,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    spec: ModelSpec,
    response_tokens: int,
    answers: bool = False,
) -> Items:
    """Tokenise one split; rows longer than ``task.max_prompt_tokens`` or the context are left out or refused.

    With ``answers`` every row must have a worked answer, and it must fit into ``response_tokens`` with its end token.
    """
    examples = load_examples(task, split, answers)
    items = [Item(n, example, *encode(tokenizer, example, spec, answers)) for n, example in enumerate(examples)]
    return fitting(items, task, split, spec, response_tokens)


def fitting(items: Sequence[Item], task: TaskConfig, split: Split, spec: ModelSpec, response_tokens: int) -> Items:
    """Keep the items whose prompt and answers fit; what becomes of the others is ``task.overlong``."""
    limit, rows = min(task.max_prompt_tokens, spec.context - response_tokens), []
    for item in items:
        answer = max(len(item.answer_ids), len(item.rejected_ids))
        if len(item.prompt_ids) <= limit and answer < response_tokens:
            rows.append(item)
        elif task.overlong == "error":
            raise DareError(_too_long(task, split, item.index, len(item.prompt_ids), limit, answer, response_tokens))
    if not rows:
        raise DareError(
            f"task.{split}: none of {len(items)} rows fits {limit} prompt and {response_tokens} response tokens; "
            "raise task.max_prompt_tokens or decoding.max_new_tokens"
        )
    return Items(rows, len(items) - len(rows))


def answer_sequences(rows: Sequence[Item], spec: ModelSpec, padding: str, canvas: int, block_size: int) -> Sequences:
    """Join prompts and answers. Every answer ends in EOS; ``padding`` says how far EOS goes on as answer tokens:
    "none", "one_block" (to the end of the block of ``block_size``) or "to_length" (to ``canvas`` tokens).
    """
    eos = spec.eos_ids[0]
    rows_ids, prompt_lengths = [], []
    for item in rows:
        offset = len(item.prompt_ids) if spec.attention == "block_causal" else 0
        length = len(item.answer_ids) + 1
        if padding == "one_block":
            length = -(-(offset + length) // block_size) * block_size - offset
        elif padding == "to_length":
            length = canvas
        rows_ids.append(item.prompt_ids + item.answer_ids + [eos] * (length - len(item.answer_ids)))
        prompt_lengths.append(len(item.prompt_ids))
    return pack(rows_ids, prompt_lengths, spec.pad_id)


def encode(
    tokenizer: PreTrainedTokenizerBase, example: Example, spec: ModelSpec, answers: bool
) -> tuple[list[int], list[int]]:
    """Return the ids of prompt and answer, the answer with its end-of-turn token but without EOS."""
    if not answers:
        return encode_prompt(tokenizer, example.prompt), []
    assert example.answer is not None
    prompt_ids, answer_ids = encode_conversation(tokenizer, example.prompt, example.answer)
    return prompt_ids, answer_ids[:-1] if answer_ids[-1:] == [spec.eos_ids[0]] else answer_ids


def _too_long(task: TaskConfig, split: str, row: int, prompt: int, limit: int, answer: int, room: int) -> str:
    return (
        f"task.{split} row {row}: prompt of {prompt} tokens (limit {limit}) or answer of {answer} tokens "
        f"(limit {room - 1} and an end token); raise the limits or set task.overlong=drop"
    )
