"""Metrics as sums, counts and extremes, so that merging micro-batches or processes never averages averages."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class _Total:
    total: float = 0.0
    count: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")


@dataclass
class Meter:
    """Accumulates named quantities; ``mean`` divides each sum once by its count."""

    totals: dict[str, _Total] = field(default_factory=dict)

    def add(self, name: str, values: Tensor | float, mask: Tensor | None = None) -> None:
        """Add every entry of ``values`` (where ``mask`` is True)."""
        kept = torch.as_tensor(values).detach()
        kept = kept if mask is None else kept[mask]
        if kept.numel():
            kept = kept.to(torch.float64)
            self._merge(name, _Total(float(kept.sum()), kept.numel(), float(kept.min()), float(kept.max())))

    def add_ratio(self, name: str, numerator: float, denominator: float) -> None:
        """Add to a quotient of two sums."""
        self._merge(name, _Total(numerator, denominator))

    def update(self, other: "Meter") -> None:
        """Merge another meter."""
        for name, total in other.totals.items():
            self._merge(name, total)

    def under(self, part: str) -> "Meter":
        """Return the same quantities named ``part/...``."""
        return Meter({f"{part}/{name}": total for name, total in self.totals.items()})

    def mean(self) -> dict[str, float]:
        """Return every quantity's mean over all its entries."""
        return {name: total.total / total.count for name, total in self.totals.items() if total.count}

    def spread(self, name: str) -> dict[str, float]:
        """Return ``name/mean``, ``name/min`` and ``name/max``."""
        total = self.totals.get(name)
        if total is None or not total.count:
            return {}
        return {f"{name}/mean": total.total / total.count, f"{name}/min": total.low, f"{name}/max": total.high}

    def _merge(self, name: str, new: _Total) -> None:
        old = self.totals.setdefault(name, _Total())
        old.total += new.total
        old.count += new.count
        old.low, old.high = min(old.low, new.low), max(old.high, new.high)
