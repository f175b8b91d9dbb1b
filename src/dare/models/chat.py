"""Chats to token ids and back, through the tokenizer's own template."""

from collections.abc import Mapping, Sequence

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from dare.errors import DareError
from dare.models.tokens import DEFAULT_END_NAMES
from dare.types import Rollouts

Turn = Mapping[str, str]
"""One turn of a chat: its ``role`` and its ``content``."""

_PROBE = "the answer to look for"


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Turn]) -> list[int]:
    """Return the ids of a chat up to the point where the assistant starts to answer.

    They end with one open assistant header, also where the template has no switch for it.
    """
    (ids,) = _ids(tokenizer, _prompt_text(tokenizer, prompt))
    return ids


def encode_conversation(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Turn], answer: str
) -> tuple[list[int], list[int]]:
    """Return the ids of ``prompt``, as ``encode_prompt`` does, and of ``answer`` as the template renders it.

    The two join to the ids of the rendered conversation, up to and including the token that closes the answer; what a
    template writes after that token belongs to the next turn. A template may leave an answer without such a token.

    Raises ``DareError`` where the tokenizer has no template, or one whose conversations do not begin with its prompts.
    """
    before = _prompt_text(tokenizer, prompt)
    full = _answered(tokenizer, prompt, answer)
    _, tail = _around_answer(tokenizer, prompt)
    if not full.startswith(before) or not full.endswith(tail):
        raise DareError(
            f"chat template: a conversation rendered with its answer, {full[-80:]!r}, does not begin with the "
            f"prompt {before[-80:]!r}; change the template so that both open the answer alike"
        )
    full = full[: len(full) - len(tail)] + _closing(tokenizer, tail)
    prompt_ids, ids, apart_ids = _ids(tokenizer, before, full, full[len(before) :])
    # a token that spans prompt and answer never occurs when the model is asked
    joined = ids[: len(prompt_ids)] == prompt_ids
    return prompt_ids, ids[len(prompt_ids) :] if joined else apart_ids


def response_texts(tokenizer: PreTrainedTokenizerBase, rollouts: Rollouts) -> list[str]:
    """Decode each response up to its first EOS."""
    ids = [row[counted].tolist() for row, counted in zip(rollouts.seqs.ids_BT, rollouts.counted_BT, strict=True)]
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def _ids(tokenizer: PreTrainedTokenizerBase, *texts: str) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def _prompt_text(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Turn]) -> str:
    """The text before the assistant's first word; where the template has no switch, a rendered answer shows it."""
    text = _render(tokenizer, prompt, True)
    if text != _render(tokenizer, prompt, False):
        return text
    return _around_answer(tokenizer, prompt)[0]


def _answered(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Turn], answer: str) -> str:
    return _render(tokenizer, [*prompt, {"role": "assistant", "content": answer}], False)


def _around_answer(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Turn]) -> tuple[str, str]:
    """What the template writes before and after an answer to ``prompt``."""
    before, found, after = _answered(tokenizer, prompt, _PROBE).rpartition(_PROBE)
    if not found:
        raise DareError("chat template: it leaves out the assistant's turns; give the model's folder one that has them")
    return before, after


def _closing(tokenizer: PreTrainedTokenizerBase, tail: str) -> str:
    """What follows an answer, up to and including its end token; no end token, nothing."""
    ends = [token for token in (*DEFAULT_END_NAMES, tokenizer.eos_token) if token and token in tail]
    return tail[: min(tail.index(token) + len(token) for token in ends)] if ends else ""


def _render(tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn], open_answer: bool) -> str:
    if not tokenizer.chat_template:
        raise DareError(
            "the model's tokenizer has no chat template; add chat_template.jinja to the model's folder "
            "(an instruct model of its family has one)"
        )
    try:
        return tokenizer.apply_chat_template([*map(dict, turns)], add_generation_prompt=open_answer, tokenize=False)
    except TemplateError as error:
        roles = ", ".join(turn["role"] for turn in turns)
        raise DareError(f"chat template: cannot render turns of {roles}: {error}; change the turns") from error
