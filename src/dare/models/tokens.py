"""Special-token ids of a checkpoint, read from its JSON files. A family contributes names of tokens, never ids."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dare.errors import DareError

DEFAULT_END_NAMES = ("<|eot_id|>", "<|im_end|>", "<|role_end|>")
"""Tokens that close a turn, in the spellings of the published chat models."""


@dataclass(frozen=True)
class SpecialIds:
    """``eos_ids`` every token that ends an answer, the model's own EOS first; ``eot_id`` the one that closes a turn."""

    mask_id: int
    eos_ids: tuple[int, ...]
    eot_id: int | None
    pad_id: int


class _Found(NamedTuple):
    """An id and the place that states it, so that a disagreement can name both places."""

    where: str
    id: int


def special_ids(
    folder: Path, config: Mapping[str, Any], mask_names: Sequence[str], end_names: Sequence[str] = DEFAULT_END_NAMES
) -> SpecialIds:
    """Find the ids in ``config``, then ``generation_config.json`` and the tokenizer's files, then by token name.

    ``mask_names`` are the family's spellings of the mask token, asked for where nothing states an id; ``end_names``
    those of the end-of-turn token. Files may be absent; a missing pad id is the EOS.

    Raises ``DareError`` when no mask or end token is found, when two places state different mask ids, or when the mask
    is also an end token.
    """
    files = _Files(folder, config)
    mask = _mask(files, mask_names)
    eot = next((found for name in end_names for found in files.named(name)), None)
    ends = [*files.stated("eos_token_id"), *files.role("eos_token"), *_eos_named_as_pad(files), *([eot] if eot else [])]
    if not ends:
        raise DareError(
            f"{folder}: no end token id in config.json or the tokenizer files; add eos_token_id to config.json"
        )
    for end in ends:
        if end.id == mask.id:
            raise DareError(f"{folder}: {mask.where} and {end.where} are both {end.id}; correct one of them")
    eos_ids = tuple(dict.fromkeys(end.id for end in ends))
    pads = [*files.stated("pad_token_id"), *files.role("pad_token")]
    return SpecialIds(mask.id, eos_ids, eot.id if eot else None, pads[0].id if pads else eos_ids[0])


def listed_tokens(folder: Path) -> dict[str, dict[str, int]]:
    """Return the added tokens of every tokenizer file that is there: file name -> token -> id."""
    decoder = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder") or {}
    added = read_json(folder / "tokenizer.json").get("added_tokens") or []
    return {
        "tokenizer_config.json": {token["content"]: int(number) for number, token in decoder.items()},
        "added_tokens.json": read_json(folder / "added_tokens.json"),
        "tokenizer.json": {token["content"]: token["id"] for token in added},
    }


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty where the file is absent; broken JSON raises ``DareError``."""
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DareError(f"{file}: not valid JSON ({error}); download the file again") from error


class _Files:
    """What a folder's files state about special tokens."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder
        self.configs = {"config.json": config, "generation_config.json": read_json(folder / "generation_config.json")}
        self.roles = [read_json(folder / name) for name in ("tokenizer_config.json", "special_tokens_map.json")]
        self.tokens = listed_tokens(folder)

    def stated(self, key: str) -> list[_Found]:
        """Ids under ``key`` (one or a list, null where unknown) in the two configs."""
        values = {name: config.get(key) for name, config in self.configs.items()}
        lists = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
        return [_Found(f"{name} {key}", i) for name, ids in lists.items() for i in ids if i is not None]

    def named(self, token: str | None) -> list[_Found]:
        """Ids under which the tokenizer's files list ``token``."""
        return [_Found(f"{file} {token!r}", tokens[token]) for file, tokens in self.tokens.items() if token in tokens]

    def role(self, role: str) -> list[_Found]:
        return self.named(self.token(role))

    def token(self, role: str) -> str | None:
        """The token that plays ``role``, such as ``mask_token``; files write it as text or as an object."""
        value = next((roles[role] for roles in self.roles if roles.get(role)), None)
        return value["content"] if isinstance(value, dict) else value


def _mask(files: _Files, names: Sequence[str]) -> _Found:
    stated = [*files.stated("mask_token_id"), *files.role("mask_token")]
    known = [found for name in names for found in files.named(name)]
    if not stated and not known:
        raise DareError(
            f"{files.folder}: no mask token id: config.json has no mask_token_id and no tokenizer file lists "
            f"{' or '.join(names) or 'a mask token'}; add mask_token_id to config.json"
        )
    chosen, *others = stated or known
    # a tokenizer may hold a second spelling: what is stated decides between them
    if stated and chosen.id not in {found.id for found in known}:
        others += known
    for other in others:
        if other.id != chosen.id:
            raise DareError(
                f"{files.folder}: two mask tokens: {chosen.where} is {chosen.id}, {other.where} is {other.id}; "
                "correct the wrong one, or add the model's mask_token_id to config.json"
            )
    return chosen


def _eos_named_as_pad(files: _Files) -> list[_Found]:
    """The stated pad id, where the tokenizer uses one token for both; some configs state only the pad id."""
    eos = files.token("eos_token")
    return files.stated("pad_token_id") if eos is not None and eos == files.token("pad_token") else []
