"""An endless, shuffled, resumable stream of batches."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from torchdata.stateful_dataloader import StatefulDataLoader

from dare.diffusion.noise import key, uniform

# torchdata 0.11 calls a function that torch has deprecated
warnings.filterwarnings("ignore", message="'set_vital' is deprecated")

T = TypeVar("T")


class EpochSampler:
    """Row numbers of one permutation after another; the permutation of an epoch is a function of (seed, epoch)."""

    def __init__(self, count: int, seed: int):
        self.count, self.seed = count, seed
        self.drawn = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            epoch, position = divmod(self.drawn, self.count)
            order = uniform(key(self.seed, "epoch", epoch)[None], self.count)[0].argsort(stable=True).tolist()
            for row in order[position:]:
                self.drawn += 1
                yield row

    def state_dict(self) -> dict[str, Any]:
        """Rows drawn so far: all there is to remember."""
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after ``state``."""
        self.drawn = state["drawn"]


def make_loader(rows: Sequence[T], batch: int, seed: int) -> "StatefulDataLoader[T]":
    """Return a loader of lists of rows whose ``state_dict`` is plain JSON."""
    return StatefulDataLoader(rows, batch_size=batch, sampler=EpochSampler(len(rows), seed), collate_fn=list)
