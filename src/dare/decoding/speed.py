"""How fast a decoding call is, told by ``watch``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dare.decoding.canvas import Canvas


class Speed:
    """A ``Watch`` that adds up what has been done: ``rows`` finished, ``settled`` positions without a mask, ``tokens``
    the model decided among them, ``forwards`` passes times the rows in them, ``steps`` passes of the call.
    """

    def __init__(self) -> None:
        self.rows = self.settled = self.tokens = self.forwards = self.steps = 0
        self.began = time.perf_counter()
        self._left = torch.zeros(4, dtype=torch.int64)

    def __call__(self, rows: Canvas) -> None:
        """Count a pass."""
        counts_N4 = _counts(rows).cpu()
        done_N = counts_N4[:, 0] > 0
        self._left += counts_N4[done_N].sum(0)
        totals = (self._left + counts_N4[~done_N].sum(0)).tolist()
        self.rows, self.settled, self.tokens, self.forwards = totals
        self.steps += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of the block out."""
        began = time.perf_counter()
        yield
        self.began += time.perf_counter() - began

    @property
    def seconds(self) -> float:
        """Seconds since it was made, without pauses."""
        return time.perf_counter() - self.began

    def rates(self) -> str:
        """Return tokens per row and pass, and per second."""
        per_forward, per_second = self.tokens / max(1, self.forwards), self.tokens / max(1e-9, self.seconds)
        return f"{per_forward:.2f} tokens/forward  {per_second:.0f} tokens/s"


def _counts(rows: Canvas) -> torch.Tensor:
    decided_NT = rows.response_NT & (rows.step_NT >= 0)
    settled_NT = rows.response_NT & ~rows.masked_NT
    return torch.stack([rows.finished_N.long(), settled_NT.sum(1), decided_NT.sum(1), rows.forwards_N], dim=1)
