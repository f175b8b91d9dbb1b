"""What the rest of DARE may know about a model: a spec, hidden states and a head."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from dare.diffusion.vocabulary import Reading
from dare.errors import DareError
from dare.models.cache import KVCache, Window


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

    @property
    def visibility(self) -> str:
        """The attention in words, with the block size."""
        return f"attention {self.attention}" + (f", blocks of {self.block_size}" if self.block_size else "")

    def __post_init__(self) -> None:
        if (self.attention == "block_causal") != (self.block_size is not None):
            raise DareError(
                f"attention {self.attention!r} with block_size {self.block_size}: block_causal names one, full none"
            )


class Scorer(Protocol):
    """A decoder that says one number about each token of a text: its log-probability, or its value."""

    spec: ModelSpec

    def states(self, shown_NT: Tensor, lengths_N: Tensor, read_NT: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """Return the final states ``[R, D]`` that predict the tokens at ``read_NT``, some in every row.

        With ``clean_NT`` (block_causal only) the input is the pair of shown and clean tokens: each shown block sees
        itself and the clean copies of strictly earlier blocks (BD3-LM, arXiv 2503.09573, section 3.2).
        """
        ...

    def read(self, hidden_MD: Tensor, ids_M: Tensor, temperature: float, *, entropy: bool = False) -> Reading:
        """Return what there is to say about each token ``[M]``, at least in float32."""
        ...


class DiffusionLM(Scorer, Protocol):
    """A denoiser. The state at position t predicts the token at position t, in every family."""

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor) -> Tensor:
        """Return the final states ``[N, T, D]`` of whole rows."""
        ...

    def head(self, hidden_MD: Tensor) -> Tensor:
        """Return logits ``[M, V]`` for gathered states; only scored positions ever meet the vocabulary."""
        ...


@runtime_checkable
class CachingLM(DiffusionLM, Protocol):
    """A denoiser that can compute part of a row against stored keys and values of the rest."""

    @property
    def lead(self) -> int:
        """Positions before a window that must be in it for the window's first state to be right."""
        ...

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor, *, window: Window | None = None) -> Tensor:
        """See ``DiffusionLM.hidden``; with ``window`` the ids and the states are those of its positions."""
        ...

    def cache(self, rows: int, width: int) -> KVCache:
        """Return an empty store."""
        ...


def require(config: Mapping[str, Any], family: str, supported: Mapping[str, Any]) -> None:
    """Refuse a ``config.json`` that asks for something the decoder does not compute."""
    for key, expected in supported.items():
        if config.get(key, expected) != expected:
            raise DareError(f"config.json: {key}={config[key]!r} is not supported for {family}; expected {expected!r}")
