"""One process, one device: the engine of laptops and of tests."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor

from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import Watch, denoise
from dare.diffusion.cut import check_cut
from dare.diffusion.likelihood import Scores
from dare.engines.base import Objective
from dare.engines.compiled import compile_mlps
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.critic import CRITIC, Critic
from dare.engines.learner import Learner, score_rows
from dare.engines.state import load_optimizer, load_policy, save_optimizer, save_policy
from dare.meter import Meter
from dare.models.checkpoint import Checkpoint
from dare.models.lora import adapter_off, has_adapter
from dare.models.transformer import Transformer
from dare.models.value import ValueModel
from dare.types import Rollouts, Sequences, Views


class LocalEngine(Learner):
    """An ``Engine`` on a single device."""

    model: Transformer

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, optim: OptimConfig, total_updates: int):
        super().__init__(checkpoint.model.to(config.device), optim, config, total_updates)
        self.checkpoint = checkpoint
        self.model.recompute, self.model.cut = config.recompute, config.cut
        if config.cut:
            check_cut(config.device)
        if config.compile:
            compile_mlps(self.model)
        self.reference = self.model
        self.critic: Critic | None = None

    def keep_reference(self) -> None:
        """Freeze a copy of the current weights as the reference policy; under an adapter the base model is it."""
        if not has_adapter(self.model):
            self.reference = copy.deepcopy(self.model).requires_grad_(False)
            if self.config.compile:  # a copy is not compiled
                compile_mlps(self.reference)

    def add_critic(self, lr: float) -> None:
        """Put a value model beside the policy, made from its current weights."""
        optim = self.optim.model_copy(update={"lr": lr})
        self.critic = Critic(ValueModel(self.model), optim, self.config, self.total_updates)

    def rollout(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        key_B: Tensor,
        group_B: Tensor,
        watch: Watch | None = None,
        *,
        predictions: bool = False,
    ) -> Rollouts:
        """See ``Engine.rollout``; the rows of a pass are those ``decode_batch`` and ``decode_tokens`` allow."""
        key_B, group_B = key_B.to(self.config.device), group_B.to(self.config.device)
        return denoise(
            self.model,
            prompts,
            decoding,
            key_B,
            group_B,
            watch=watch,
            predictions=predictions,
            **self.config.decode_limits,
        )

    def score(self, seqs: Sequences, views: Views, *, reference: bool = False) -> Scores:
        """See ``Engine.score``."""
        model = self.reference if reference else self.model
        with adapter_off(model) if reference and has_adapter(model) else nullcontext():
            return score_rows(model, seqs, views, self.config.micro_batch)

    def values(self, seqs: Sequences, views: Views) -> Tensor:
        """See ``Engine.values``."""
        return score_rows(self._critic().model, seqs, views, self.config.micro_batch).logp_BKT

    def update_values(self, batch: Batch, objective: Objective) -> Meter:
        """See ``Engine.update_values``."""
        return self._critic().update(batch, objective)

    def save(self, folder: Path) -> None:
        """See ``Engine.save``."""
        save_policy(folder, self.checkpoint)
        save_optimizer(folder, self.optimizer, self.counters)
        if self.critic is not None:
            self.critic.save(folder / CRITIC)

    def load(self, folder: Path) -> None:
        """See ``Engine.load``; the reference policy stays as it is."""
        load_policy(folder, self.checkpoint)
        self.counters = load_optimizer(folder, self.optimizer)
        if self.critic is not None:
            self.critic.load(folder / CRITIC)

    def _critic(self) -> Critic:
        assert self.critic is not None, "add_critic comes first"
        return self.critic
