"""Endless, shuffled, resumable batches: a keyed permutation per epoch and source, sources mixed by weight.

There are no worker processes for them to depend on: rows are tokenised before they are drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dare.data.items import Draws, Item, Items
from dare.diffusion.noise import key, uniform


class Shuffled:
    """Rows in memory, one permutation after another; that of an epoch is a function of (seed, epoch)."""

    def __init__(self, rows: Sequence[Item], seed: int):
        self.rows, self.seed = rows, seed
        self.drawn = 0
        self._order: tuple[int, list[int]] = (-1, [])

    def draw(self) -> Item:
        """See ``Draws``."""
        epoch, position = divmod(self.drawn, len(self.rows))
        if self._order[0] != epoch:
            self._order = (epoch, permutation(len(self.rows), self.seed, "epoch", epoch))
        self.drawn += 1
        return replace(self.rows[self._order[1][position]], epoch=epoch)

    def state_dict(self) -> dict[str, Any]:
        """See ``Draws``."""
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Draws``."""
        self.drawn = state["drawn"]


class Mixture:
    """Draws from several sources in proportion to their weights.

    Each draw goes to the source that is furthest behind its share, so that the shares hold in every stretch of draws,
    to about one row, and no chance is involved.
    """

    def __init__(self, sources: Sequence[Draws], weights: Sequence[float]):
        self.sources = sources
        self.shares = [weight / sum(weights) for weight in weights]
        self.counts = [0] * len(sources)

    def draw(self) -> Item:
        """See ``Draws``."""
        total = sum(self.counts) + 1
        behind = [share * total - count for share, count in zip(self.shares, self.counts, strict=True)]
        source = behind.index(max(behind))
        self.counts[source] += 1
        return self.sources[source].draw()

    def state_dict(self) -> dict[str, Any]:
        """See ``Draws``."""
        return {"counts": list(self.counts), "sources": [source.state_dict() for source in self.sources]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Draws``."""
        self.counts = list(state["counts"])
        for source, inner in zip(self.sources, state["sources"], strict=True):
            source.load_state_dict(inner)


class Loader:
    """Batches of rows. Its state is that of the draws behind the batches taken so far."""

    def __init__(self, draws: Draws, batch: int):
        self.draws, self.batch = draws, batch

    def __iter__(self) -> Iterator[list[Item]]:
        while True:
            yield [self.draws.draw() for _ in range(self.batch)]

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return self.draws.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after ``state``."""
        self.draws.load_state_dict(state)


def open_loader(items: Items, batch: int, seed: int) -> Loader:
    """Return batches of a run's rows: one source as it is, several mixed by weight."""
    if len(items.sources) == 1:
        return Loader(items.sources[0].open(seed), batch)
    # sources of one length must not be shuffled alike
    seeds = [int(key(seed, "source", number)) for number in range(len(items.sources))]
    draws = [source.open(own) for source, own in zip(items.sources, seeds, strict=True)]
    return Loader(Mixture(draws, [source.weight for source in items.sources]), batch)


def make_loader(rows: Sequence[Item], batch: int, seed: int) -> Loader:
    """Return batches of ``rows``."""
    return Loader(Shuffled(rows, seed), batch)


def permutation(count: int, *parts: int | str) -> list[int]:
    """Return the numbers below ``count`` in the order that the key's ``parts`` draw."""
    return uniform(key(*parts)[None], count)[0].argsort(stable=True).tolist()
