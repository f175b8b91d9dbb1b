"""Tokenizers: the embedded byte tokenizer, and any checkpoint's own, both as ``transformers`` tokenizers."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.utils import logging

from dare.errors import DareError
from dare.models.tokens import listed_tokens, read_json

_SPECIAL = {"mask": "<|mask|>", "eos": "<|eos|>", "pad": "<|pad|>"}
_ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
_TEMPLATE = (
    "{% for turn in messages %}<|{{ turn.role }}|>{{ turn.content }}"
    "{% if turn.role == 'assistant' %}<|eos|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Dream's own class is a copy of Qwen2's that only remote code can load
_STAND_INS = {"DreamTokenizer": Qwen2Tokenizer}


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


def _check_vocabulary(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Added tokens are numbered after the vocabulary: without its file they slip to wrong ids, silently."""
    token, number = tokenizer.eos_token, tokenizer.eos_token_id
    for file, tokens in listed_tokens(folder).items():
        if tokens.get(token, number) != number:
            raise DareError(
                f"{folder}: token {token!r} loads as {number}, {file} says {tokens[token]}; "
                "copy the checkpoint's vocabulary there (tokenizer.json, or vocab.json and merges.txt)"
            )
