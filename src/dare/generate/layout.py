"""From a request to token ids with masks where the model is to write, and back to text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.generate.config import Wishes
from dare.models.base import ModelSpec
from dare.models.chat import Turn, encode_prompt
from dare.serving.text import Ending
from dare.types import Rollouts

_HOLE = re.compile(r"<mask(?:\*(\d+))?>")


@dataclass(frozen=True)
class Layout:
    """``ids`` with masks to decode; what is answered begins at position ``start``; ``prompt`` as it was asked."""

    ids: list[int]
    start: int
    prompt: str
    decoding: DecodingConfig

    def encloses(self, mask_id: int) -> bool:
        """Whether given text follows a mask."""
        return self.ids[-1] != mask_id


def lay_out(wishes: Wishes, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec, decoding: DecodingConfig) -> Layout:
    """Return the layout of ``--prompt`` or ``--text``."""
    if wishes.text is not None:
        return _text(wishes.text, tokenizer, spec, decoding)
    assert wishes.prompt is not None
    turn = {"role": "user", "content": wishes.prompt}
    if wishes.raw or not tokenizer.chat_template:
        before = _ids(tokenizer, wishes.prompt)
        return _answer(before, wishes.prompt, _ids(tokenizer, wishes.suffix), spec, decoding)
    return lay_out_chat([turn], tokenizer, spec, decoding, wishes.suffix)


def lay_out_chat(
    turns: Sequence[Turn],
    tokenizer: PreTrainedTokenizerBase,
    spec: ModelSpec,
    decoding: DecodingConfig,
    suffix: str = "",
) -> Layout:
    """Return the layout of the answer to a conversation."""
    prompt = "\n".join(turn["content"] for turn in turns)
    return _answer(encode_prompt(tokenizer, turns), prompt, _ids(tokenizer, suffix), spec, decoding)


def written(rollouts: Rollouts, row: int, start: int, ending: Ending) -> str:
    """Return the text from ``start`` on: what was given as it is, what was decoded up to its first end."""
    span = slice(start, int(rollouts.seqs.lengths_B[row]))
    pairs = zip(rollouts.seqs.ids_BT[row, span].tolist(), rollouts.seqs.response_BT[row, span].tolist(), strict=True)
    pieces = [(decoded, [token for token, _ in group]) for decoded, group in groupby(pairs, lambda pair: pair[1])]
    return "".join(ending.close(ids).text if decoded else str(ending.tokenizer.decode(ids)) for decoded, ids in pieces)


def _text(text: str, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec, decoding: DecodingConfig) -> Layout:
    ids, place = [], 0
    for hole in _HOLE.finditer(text):
        ids += _ids(tokenizer, text[place : hole.start()])
        # one more than the context is already too many
        ids += [spec.mask_id] * min(int(hole[1] or 1), spec.context + 1)
        place = hole.end()
    ids += _ids(tokenizer, text[place:])
    if spec.mask_id not in ids:
        raise DareError("--text has no masks; write <mask>, or <mask*8> for eight, where the model is to write")
    _check_room(ids, spec, "text")
    first, last = ids.index(spec.mask_id), len(ids) - ids[::-1].index(spec.mask_id)
    update: dict[str, object] = {"max_new_tokens": last - first}
    if "stop_at_eos" not in decoding.model_fields_set:
        update["stop_at_eos"] = False  # an end in one hole says nothing about the next
    return Layout(ids, 0, text, decoding.model_copy(update=update))


def _answer(before: list[int], prompt: str, after: list[int], spec: ModelSpec, decoding: DecodingConfig) -> Layout:
    if spec.mask_id in (*before, *after):
        raise DareError("the prompt holds the model's mask token; use --text to have masks filled in")
    ids = [*before, *[spec.mask_id] * decoding.max_new_tokens, *after]
    _check_room(ids, spec, f"prompt of {len(before)} tokens and {decoding.max_new_tokens} to write")
    return Layout(ids, len(before), prompt, decoding)


def _check_room(ids: list[int], spec: ModelSpec, what: str) -> None:
    if len(ids) > spec.context:
        raise DareError(
            f"{what}: {len(ids)} tokens do not fit the context of {spec.context}; shorten the text or write less "
            "(decoding.max_new_tokens)"
        )


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
