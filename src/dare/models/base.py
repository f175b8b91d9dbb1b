"""What the rest of DARE may know about a model: a spec, hidden states and a head."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from dare.errors import DareError


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The facts that loss, sampler and evaluator read; they come from the checkpoint, never from a run's settings.

    ``attention`` "full" (masked models) or "block_causal" (a position sees its own block and every earlier one);
    ``block_size`` positions per block, counted from the first prompt token (block_causal only).
    """

    family: str
    mask_id: int
    eos_ids: tuple[int, ...]
    pad_id: int
    vocab_size: int
    context: int
    attention: Literal["full", "block_causal"] = "full"
    block_size: int | None = None


class DiffusionLM(Protocol):
    """A denoiser. The state at position t predicts the token at position t, in every family."""

    spec: ModelSpec

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """Return the final hidden states ``[N, T, D]``.

        With ``clean_NT`` (block_causal only) the input is the pair [noised | clean]: each noised block sees itself and
        the clean copies of strictly earlier blocks, and the states of the noised half are returned (BD3-LM,
        arXiv 2503.09573, section 3.2).
        """
        ...

    def head(self, hidden_MD: Tensor) -> Tensor:
        """Return logits ``[M, V]`` for gathered states; only scored positions ever meet the vocabulary."""
        ...


def require(config: Mapping[str, Any], family: str, supported: Mapping[str, Any]) -> None:
    """Refuse a ``config.json`` that asks for something the decoder does not compute."""
    for key, expected in supported.items():
        if config.get(key, expected) != expected:
            raise DareError(f"config.json: {key}={config[key]!r} is not supported for {family}; expected {expected!r}")
