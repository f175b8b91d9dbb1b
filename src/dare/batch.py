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
    ``value_BKT`` and ``return_BKT`` (a dimension but B may be 1) what a value model expected before the first update
    and what it should have expected.
    """

    seqs: Sequences
    views: Views
    counted_BT: Tensor
    old_BKT: Tensor | None = None
    reference_BKT: Tensor | None = None
    advantage_BKT: Tensor | None = None
    reference_BK: Tensor | None = None
    together: int = 1
    value_BKT: Tensor | None = None
    return_BKT: Tensor | None = None

    def __len__(self) -> int:
        return len(self.seqs.ids_BT)

    def split(self, rows: int) -> Iterator["Batch"]:
        """Cut into micro-batches of at most ``rows`` rows, each trimmed to its own longest sequence.

        Rows that belong together stay so, even where ``rows`` is fewer than those.
        """
        rows = max(rows // self.together, 1) * self.together
        for start in range(0, len(self), rows):
            yield self.select(slice(start, start + rows)).trim()

    def trim(self) -> "Batch":
        """Drop the columns that are padding in every row."""
        width = int(self.seqs.lengths_B.max())
        cut = {
            name: value[..., :width]
            for name in ("counted_BT", "old_BKT", "reference_BKT", "advantage_BKT", "value_BKT", "return_BKT")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, seqs=self.seqs.trim(), views=self.views.trim(width), **cut)
