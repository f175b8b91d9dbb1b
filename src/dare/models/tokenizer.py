"""Tokenizers: the embedded byte tokenizer, and any checkpoint's own, both as ``transformers`` tokenizers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import TemplateError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.utils import logging

from dare.errors import DareError
from dare.models.tokens import DEFAULT_END_NAMES, listed_tokens, read_json
from dare.types import Rollouts

Turn = Mapping[str, str]
"""One turn of a chat: its ``role`` and its ``content``."""

_SPECIAL = {"mask": "<|mask|>", "eos": "<|eos|>", "pad": "<|pad|>"}
_ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
_TEMPLATE = (
    "{% for turn in messages %}<|{{ turn.role }}|>{{ turn.content }}"
    "{% if turn.role == 'assistant' %}<|eos|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Dream's own class is a copy of Qwen2's that only remote code can load
_STAND_INS = {"DreamTokenizer": Qwen2Tokenizer}
_PROBE = "the answer to look for"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer (256 bytes + 6 special tokens) with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    names = {f"{role}_token": token for role, token in _SPECIAL.items()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, extra_special_tokens=_ROLES, **names)
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def tiny_token_ids() -> dict[str, int]:
    """Return the ids a tiny ``config.json`` needs: mask, eos, pad and vocab_size."""
    tokenizer = tiny_tokenizer()
    ids = {role: tokenizer.convert_tokens_to_ids(token) for role, token in _SPECIAL.items()}
    return {**ids, "vocab_size": len(tokenizer)}


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load a checkpoint's tokenizer from local files; no remote code is run and nothing is downloaded.

    Raises ``DareError`` where files are missing, also when that would only show as wrong ids.
    """
    stand_in = _STAND_INS.get(read_json(folder / "tokenizer_config.json").get("tokenizer_class", ""), AutoTokenizer)
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns that it does not know the model, which it is not asked to load
    try:
        tokenizer = stand_in.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise DareError(
            f"{folder}: no usable tokenizer ({reason}); copy the checkpoint's tokenizer files there"
        ) from error
    finally:
        logging.set_verbosity(level)
    _check_vocabulary(tokenizer, folder)
    return tokenizer


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


def _check_vocabulary(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Added tokens are numbered after the vocabulary: without its file they slip to wrong ids, silently."""
    token, number = tokenizer.eos_token, tokenizer.eos_token_id
    for file, tokens in listed_tokens(folder).items():
        if tokens.get(token, number) != number:
            raise DareError(
                f"{folder}: token {token!r} loads as {number}, {file} says {tokens[token]}; "
                "copy the checkpoint's vocabulary there (tokenizer.json, or vocab.json and merges.txt)"
            )


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
