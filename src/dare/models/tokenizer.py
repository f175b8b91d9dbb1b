"""Tokenizers: the embedded byte tokenizer, and any checkpoint's own, both as ``transformers`` tokenizers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from dare.errors import DareError
from dare.types import Rollouts

_SPECIAL = {"mask": "<|mask|>", "eos": "<|eos|>", "pad": "<|pad|>"}
_ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
_TEMPLATE = (
    "{% for turn in messages %}<|{{ turn.role }}|>{{ turn.content }}"
    "{% if turn.role == 'assistant' %}<|eos|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


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
    """Load a checkpoint's tokenizer from local files; no remote code is run and nothing is downloaded."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns that it does not know the model, which it is not asked to load
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise DareError(
            f"{folder}: no usable tokenizer ({reason}); copy the checkpoint's tokenizer files there"
        ) from error
    finally:
        logging.set_verbosity(level)


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the ids of a chat up to the point where the assistant starts to answer."""
    turns = [dict(turn) for turn in prompt]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def encode_answer(tokenizer: PreTrainedTokenizerBase, answer: str) -> list[int]:
    """Return the ids of an answer, without an end token."""
    return tokenizer(answer, add_special_tokens=False)["input_ids"]


def response_texts(tokenizer: PreTrainedTokenizerBase, rollouts: Rollouts) -> list[str]:
    """Decode each response up to its first EOS."""
    ids = [row[counted].tolist() for row, counted in zip(rollouts.seqs.ids_BT, rollouts.counted_BT, strict=True)]
    return tokenizer.batch_decode(ids, skip_special_tokens=True)
