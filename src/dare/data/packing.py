"""Continued pre-training on plain text: documents joined with EOS and cut into rows of one length."""

from collections.abc import Sequence

from dare.data.items import Item
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.types import Example


def pack_documents(documents: Sequence[Item], size: int, spec: ModelSpec, first: int) -> list[Item]:
    """Join documents in their order, an EOS behind each, and cut the whole into rows of ``size`` tokens.

    Every token is an answer token and every token of the documents is in a row: the last row is kept though it may be
    short. No EOS is added to a row, it has those of its documents. Rows are numbered from ``first``.

    Raises ``DareError`` for a document with a prompt, and a size beyond the model's context.
    """
    if size > spec.context:
        raise DareError(f"task.pack={size}: the model reads {spec.context} tokens; set it to {spec.context} or less")
    if any(document.prompt_ids for document in documents):
        raise DareError(f"task.pack={size} is for rows with a text column alone; remove it for prompts and answers")
    ids = [token for document in documents for token in (*document.answer_ids, spec.eos_ids[0])]
    pieces = (ids[start : start + size] for start in range(0, len(ids), size))
    return [_row(first + number, piece) for number, piece in enumerate(pieces)]


def _row(number: int, ids: list[int]) -> Item:
    return Item(number, Example((), {"row": number}), [], ids, ends=False)
