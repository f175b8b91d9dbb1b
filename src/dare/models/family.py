"""A family: how its ``config.json``, special tokens and tensor names map onto the shared decoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dare.errors import DareError, nearest
from dare.models import converted, diffusion_gemma, dream, llada, llada2, llada_moe, sdar, tiny
from dare.models.base import ModelSpec
from dare.models.names import Piece, llama_pieces
from dare.models.tokens import SpecialIds
from dare.models.transformer import Architecture


@dataclass(frozen=True, kw_only=True)
class Family:
    """``parse`` reads ``config.json``; ``pieces`` says where a parameter lies in the checkpoint; ``mask_names`` are the
    spellings of its mask token.
    """

    parse: Callable[[Mapping[str, Any], SpecialIds], tuple[Architecture, ModelSpec]]
    pieces: Callable[[str, Architecture], list[Piece]] = llama_pieces
    mask_names: tuple[str, ...] = ()


_SDAR = Family(parse=sdar.parse, mask_names=("<|MASK|>", "<MASK>"))
FAMILIES: dict[str, Family] = {
    "LLaDAModelLM": Family(parse=llada.parse, pieces=llada.pieces, mask_names=("<|mdm_mask|>",)),
    "DreamModel": Family(parse=dream.parse, mask_names=("<|mask|>",)),
    "SDARForCausalLM": _SDAR,
    "SDARMoeForCausalLM": _SDAR,
    "LLaDA2MoeModelLM": Family(parse=llada2.parse, pieces=llada2.pieces, mask_names=("<|mask|>",)),
    **dict.fromkeys(llada_moe.ARCHITECTURES, Family(parse=llada_moe.parse, mask_names=("<|mask|>",))),
    converted.CONVERTED: Family(parse=converted.parse),
    "DareTiny": Family(parse=tiny.parse, pieces=tiny.pieces),
}

ALONE = {diffusion_gemma.ARCHITECTURE: diffusion_gemma.__name__}
"""Families without a mask token, and the module that loads, trains and samples them."""


def family_of(config: Mapping[str, Any], source: str) -> Family:
    """Return the family named by ``architectures`` in ``config``; ``source`` names the file in errors."""
    names = config.get("architectures") or ["(none)"]
    if names[0] in ALONE:
        raise DareError(
            f"{source}: {names[0]!r} has no mask token, which the dare commands decode and train with; "
            f"use load, sft_loss and generate of {ALONE[names[0]]}"
        )
    if names[0] not in FAMILIES:
        raise DareError(f"{source}: architecture {names[0]!r} is not supported; {nearest(names[0], FAMILIES)}")
    return FAMILIES[names[0]]
