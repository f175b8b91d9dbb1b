"""One process, one device: the engine of laptops and of tests."""

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from dare.batch import Batch
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import Watch, denoise
from dare.diffusion.likelihood import Scores, score_views
from dare.engines.accumulate import backward
from dare.engines.base import Objective
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.state import load_optimizer, load_policy, save_optimizer, save_policy
from dare.errors import DareError
from dare.meter import Meter
from dare.models.checkpoint import Checkpoint
from dare.models.lora import adapter_off, has_adapter
from dare.types import Rollouts, Sequences, Views


class LocalEngine:
    """An ``Engine`` on a single device."""

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig, optim: OptimConfig, total_updates: int):
        self.checkpoint, self.config, self.optim, self.total_updates = checkpoint, config, optim, total_updates
        self.model = checkpoint.model.to(config.device)
        self.spec = self.model.spec
        self.reference = self.model
        self.trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay, fused=True
        )
        self.updates = 0
        self.skipped = 0

    def keep_reference(self) -> None:
        """Freeze a copy of the current weights as the reference policy; under an adapter the base model is it."""
        if not has_adapter(self.model):
            self.reference = copy.deepcopy(self.model).requires_grad_(False)

    def rollout(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        key_B: Tensor,
        group_B: Tensor,
        watch: Watch | None = None,
    ) -> Rollouts:
        """See ``Engine.rollout``; the rows of a pass are those ``decode_batch`` and ``decode_tokens`` allow."""
        key_B, group_B = key_B.to(self.config.device), group_B.to(self.config.device)
        return denoise(self.model, prompts, decoding, key_B, group_B, watch=watch, **self.config.decode_limits)

    def score(self, seqs: Sequences, views: Views, *, reference: bool = False) -> Scores:
        """See ``Engine.score``."""
        model = self.reference if reference else self.model
        logps, entropies = [], []
        with adapter_off(model) if reference and has_adapter(model) else nullcontext():
            for start in range(0, len(seqs.ids_BT), self.config.micro_batch):
                rows = slice(start, start + self.config.micro_batch)
                scores = score_views(model, seqs.select(rows), views.select(rows))
                logps.append(scores.logp_BKT)
                entropies.append(scores.entropy_BKT)
        return Scores(torch.cat(logps), torch.cat(entropies))

    def update(self, batch: Batch, objective: Objective) -> Meter:
        """See ``Engine.update``; a loss or gradient that is not finite leaves the weights as they were."""
        meter = Meter()
        units = objective.units(batch)
        finite = units > 0
        for micro in batch.split(self.config.micro_batch) if finite else ():
            loss, metrics = backward(self.model, micro, objective, units)
            finite = finite and math.isfinite(loss)
            meter.update(metrics)
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.optim.max_grad_norm)
        if finite and math.isfinite(float(norm)):
            self._step()
            meter.add("grad_norm", float(norm))
        else:
            self._skip()
            meter = Meter()
        self.optimizer.zero_grad(set_to_none=True)
        meter.add("skipped_updates", float(self.skipped > 0))
        return meter

    def lr(self) -> float:
        """Learning rate of the next update: a function of the number of updates alone."""
        warm = min(1.0, (self.updates + 1) / (self.optim.warmup + 1))
        if self.optim.schedule == "constant":
            return self.optim.lr * warm
        progress = min(1.0, self.updates / max(1, self.total_updates))
        return self.optim.lr * warm * 0.5 * (1 + math.cos(math.pi * progress))

    def save(self, folder: Path) -> None:
        """See ``Engine.save``."""
        save_policy(folder, self.checkpoint)
        save_optimizer(folder, self.optimizer, {"updates": self.updates, "skipped": self.skipped})

    def load(self, folder: Path) -> None:
        """See ``Engine.load``; the reference policy stays as it is."""
        load_policy(folder, self.checkpoint)
        counters = load_optimizer(folder, self.optimizer)
        self.updates, self.skipped = counters["updates"], counters["skipped"]

    def _step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        self.optimizer.step()
        self.updates += 1
        self.skipped = 0

    def _skip(self) -> None:
        self.skipped += 1
        if self.skipped >= self.optim.max_skipped:
            raise DareError(
                f"{self.skipped} updates in a row had a loss or gradient that is not finite; the last checkpoint is "
                f"intact: lower optim.lr (now {self.optim.lr}) or look for broken rows"
            )
