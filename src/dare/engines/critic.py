"""The value model of a run and its optimiser."""

from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save_file

from dare.batch import Batch
from dare.engines.base import Objective
from dare.engines.learner import Learner
from dare.engines.state import load_optimizer, save_optimizer
from dare.errors import DareError
from dare.meter import Meter
from dare.models.value import ValueModel

CRITIC, _WEIGHTS = "critic", "trained.safetensors"


class Critic(Learner):
    """Learns beside the policy; its metrics are named ``value/...``, its files lie in a folder of their own."""

    rate_setting: ClassVar[str] = "algorithm.critic.lr"
    model: ValueModel

    def update(self, batch: Batch, objective: Objective) -> Meter:
        """See ``Learner.update``."""
        return super().update(batch, objective).under("value")

    def save(self, folder: Path) -> None:
        """Write the weights that learn and the state of their optimiser; the rest is the starting model's."""
        folder.mkdir()
        save_file(self.model.trained(), folder / _WEIGHTS)
        save_optimizer(folder, self.optimizer, self.counters)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Restore what ``save`` wrote, bit for bit."""
        if not (folder / _WEIGHTS).is_file():
            raise DareError(f"{folder}: no {_WEIGHTS} there; a run resumes with the algorithm.critic it began with")
        kept = load_file(folder / _WEIGHTS)
        for name, weight in self.model.trained().items():
            weight.copy_(kept[name])
        self.counters = load_optimizer(folder, self.optimizer)
