"""A family: how its ``config.json`` and tensor names map onto the shared decoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dare.errors import DareError, nearest
from dare.models import llada, tiny
from dare.models.base import ModelSpec
from dare.models.transformer import Architecture


@dataclass(frozen=True)
class Family:
    """``parse`` reads ``config.json``; ``tensor_name`` maps our parameter names to the checkpoint's."""

    parse: Callable[[Mapping[str, Any]], tuple[Architecture, ModelSpec]]
    tensor_name: Callable[[str], str]


FAMILIES: dict[str, Family] = {
    "LLaDAModelLM": Family(llada.parse, llada.tensor_name),
    "DareTiny": Family(tiny.parse, tiny.tensor_name),
}


def family_of(config: Mapping[str, Any], source: str) -> Family:
    """Return the family named by ``architectures`` in ``config``; ``source`` names the file in errors."""
    names = config.get("architectures") or ["(none)"]
    if names[0] not in FAMILIES:
        raise DareError(f"{source}: architecture {names[0]!r} is not supported; {nearest(names[0], FAMILIES)}")
    return FAMILIES[names[0]]
