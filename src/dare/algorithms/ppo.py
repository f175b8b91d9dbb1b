"""Classic PPO: a value model in the place of a group's baseline (arXiv 1707.06347), over denoising steps."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from dare.algorithms.base import Algorithm
from dare.algorithms.config import KLName
from dare.algorithms.steps import StepsConfig
from dare.algorithms.value import CriticConfig
from dare.models.base import ModelSpec


class PPOCritic(CriticConfig):
    """The value model of PPO, with the errors' decay of its paper."""

    lam: float = Field(0.95, ge=0, le=1)
    target: Literal["sum", "lambda"] = "lambda"


class PPO(StepsConfig):
    """Tokens in the states that decided them, the mean over all tokens of the clipped surrogate (equation 7).

    A denoising step is a step of the environment; the reward comes with the last one. ``whiten`` brings the advantages
    of a batch to mean 0 and deviation 1. ``kl_coef`` above 0 takes the divergence from the starting model off the
    reward (InstructGPT, arXiv 2203.02155, equation 2).
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"baseline"})

    name: Literal["ppo"] = "ppo"
    group_size: PositiveInt = 1
    updates: PositiveInt = 4
    kl: KLName = "k1"
    kl_in: Literal["loss", "reward"] = "reward"
    critic: PPOCritic = PPOCritic()
    whiten: bool = True

    @property
    def critic_lr(self) -> float | None:
        """See ``AlgorithmConfig.critic_lr``."""
        return self.critic.lr

    def build(self, spec: ModelSpec) -> Algorithm:
        """Compose the algorithm."""
        valued = self.critic.choices(spec.block_size, whitened=self.whiten)
        return self.compose(views=self.tokens(spec), fresh_views=False, **self.units(spec), **valued)
