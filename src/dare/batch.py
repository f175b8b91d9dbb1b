"""What one optimiser step consumes: sequences, their views, and the constants an objective needs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from dare.types import Rows, Sequences, Views


@dataclass(frozen=True)
class Batch(Rows):
    """Rows of one update. ``counted_BT`` positions that enter the loss; the rest is set for RL only.

    ``old_BKT`` and ``reference_BKT`` are token log-probabilities of the behaviour and the reference policy on the very
    same views; without ``old_BKT`` the behaviour policy is the live one. ``advantage_BKT`` credit of each view and
    token, any dimension but B may be 1. ``reference_BK`` the reference policy's estimates of each response's evidence
    lower bound (preference pairs), of views that need not be these. ``together`` adjacent rows belong to each other.
    ``entropy_BKT`` of each scored token's distribution (nats) and ``best_BKT``, the log-probability of its most
    probable token, where the objective reads them. ``value_BKT`` and ``return_BKT`` (a dimension but B may be 1) what a
    value model expected before the first update and what it should have expected.
    """

    seqs: Sequences
    views: Views
    counted_BT: Tensor
    old_BKT: Tensor | None = None
    reference_BKT: Tensor | None = None
    advantage_BKT: Tensor | None = None
    reference_BK: Tensor | None = None
    together: int = 1
    entropy_BKT: Tensor | None = None
    best_BKT: Tensor | None = None
    value_BKT: Tensor | None = None
    return_BKT: Tensor | None = None

    def __len__(self) -> int:
        return len(self.seqs.ids_BT)

    def split(self, rows: int, tokens: int | None = None) -> Iterator["Batch"]:
        """Cut into micro-batches of at most ``rows`` rows and ``tokens`` tokens, each trimmed to its longest sequence.

        Rows that belong together stay so, and one of them is the least there is, whatever the limits.
        """
        start, size, held = 0, self.together, 0
        for stop, more in enumerate(self.seqs.lengths_B.view(-1, size).sum(1).tolist(), start=1):
            full = (stop * size - start > rows) or (tokens is not None and held + more > tokens)
            if full and held:
                yield self.select(slice(start, (stop - 1) * size)).trim()
                start, held = (stop - 1) * size, 0
            held += more
        yield self.select(slice(start, len(self))).trim()

    def trim(self) -> "Batch":
        """Drop the columns that are padding in every row."""
        width = int(self.seqs.lengths_B.max())
        cut = {
            name: value[..., :width]
            for name in ("counted_BT", "old_BKT", "reference_BKT", "advantage_BKT", "value_BKT", "return_BKT")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, seqs=self.seqs.trim(), views=self.views.trim(width), **cut)
