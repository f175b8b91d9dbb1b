"""Credit rules: from graded rollouts to an advantage for every view and token."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from dare.algorithms.advantage import Baseline
from dare.types import Rollouts, Views


@dataclass(frozen=True)
class Credit:
    """``advantage_BKT`` one number per view and token, any dimension but B may be 1.

    ``imitation_BKT`` weights of a cross-entropy on tokens, in units of the loss; ``views_K`` numbers of the views that
    are trained (None: all).
    """

    advantage_BKT: Tensor
    imitation_BKT: Tensor | None = None
    views_K: Tensor | None = None

    def select(self, keep_B: Tensor) -> "Credit":
        """Keep some rows."""
        imitation_BKT = None if self.imitation_BKT is None else self.imitation_BKT[keep_B]
        return replace(self, advantage_BKT=self.advantage_BKT[keep_B], imitation_BKT=imitation_BKT)


class Context(Protocol):
    """What a credit rule may ask the trainer."""

    progress: float
    """Share of the run that is over, 0 to 1."""

    def reward(self, rollouts: Rollouts) -> Tensor:
        """Grade other texts as answers to the same prompts: ``[B]``."""
        ...


CreditRule = Callable[[Rollouts, Views, Tensor, Context], Credit]
"""(rollouts, views, reward [B], context) -> credit."""


def outcome(baseline: Baseline) -> CreditRule:
    """One advantage per response."""
    return lambda rollouts, views, reward_B, context: Credit(baseline(reward_B, rollouts.group_B)[:, None, None])
