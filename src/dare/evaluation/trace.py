"""The order in which a diffusion model wrote an answer: intermediate states and their printable form."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "░"
SPECIAL = re.compile(r"<\|[^|]*\|>|</s>|<(eos|pad)>|\[(EOS|PAD)\]")


def states(tokens: Sequence[str], steps: Sequence[int]) -> list[list[str | None]]:
    """Return the response after each denoising step; ``None`` marks a position that is still masked.

    ``steps[i]`` is the step that committed ``tokens[i]``; a negative step means never. State ``s`` shows the
    tokens with ``0 <= steps[i] <= s``, so the last state shows everything that was decoded.
    """
    pairs = list(zip(tokens, steps, strict=True))
    return [[t if 0 <= at <= step else None for t, at in pairs] for step in range(max(steps, default=-1) + 1)]


def symbol(token: str) -> str:
    """Return a token on one line: special tokens such as ``<|eos|>`` read ``⏎``, line breaks read ``↵``."""
    return "⏎" if SPECIAL.fullmatch(token) else token.replace("\n", "↵")


def trace_text(trace: Mapping[str, Any]) -> list[str]:
    """Return one line of text per denoising step of a trace, with ``░`` for every masked position."""
    return [
        "".join(MASK if token is None else symbol(token) for token in state)
        for state in states(trace["tokens"], trace["steps"])
    ]


def decoded(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace without the positions after the last one that was ever decoded."""
    end = max((i + 1 for i, step in enumerate(trace["steps"]) if step >= 0), default=0)
    return {**trace, "tokens": list(trace["tokens"])[:end], "steps": list(trace["steps"])[:end]}
