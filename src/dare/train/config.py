"""The typed settings of a training run. Each group is one YAML section."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from dare.algorithms.dpo import DPOConfig
from dare.algorithms.registry import AnyAlgorithm
from dare.config import Config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig, OptimConfig
from dare.models.checkpoint import kind_of
from dare.models.lora import LoraSettings
from dare.train.folder import newest_checkpoint


class ModelConfig(Config):
    """``path`` a checkpoint folder, a run folder, or an embedded model: ``tiny:masked``, ``tiny:block``.

    ``lora`` trains an adapter on the frozen model instead of all weights.
    """

    path: str = "tiny:masked"
    lora: LoraSettings | None = None


class TrainConfig(Config):
    """``batch`` rows (SFT) or prompts (RL) per step; ``save_every`` 0: save at the end only; ``keep`` newest saves.

    ``log_rollouts`` answers of a step are kept with their denoising steps, for about a hundred steps of a run (RL).
    """

    steps: PositiveInt = 100
    batch: PositiveInt = 16
    seed: int = Field(0, ge=0)
    save_every: int = Field(0, ge=0)
    keep: PositiveInt = 2
    log_rollouts: int = Field(2, ge=0)


class GuardConfig(Config):
    """What watches an RL run; ``docs/guards.md`` explains each alarm.

    Every ``eval_every`` steps (0: never) at most ``eval_count`` held-out rows are answered greedily. The run stops
    after ``patience`` evaluations in a row whose 95 % interval lies below what the untrained model reached.

    An alarm is raised when its sign has held for ``steps`` steps in a row: one wrong reward on at least ``floor_share``
    of the answers, equal rewards in ``zero_variance_share`` of the prompts' groups, an entropy (nats) of no more than
    ``entropy_floor`` or ``entropy_share`` of its first value, a length of ``length_share`` of its first value.
    """

    eval_every: int = Field(0, ge=0)
    eval_count: PositiveInt = 256
    patience: PositiveInt = 2
    steps: PositiveInt = 10
    floor_share: float = Field(0.95, gt=0, le=1)
    zero_variance_share: float = Field(0.95, gt=0, le=1)
    entropy_share: float = Field(0.1, ge=0, lt=1)
    entropy_floor: float = Field(1e-3, ge=0)
    length_share: float = Field(0.1, ge=0, lt=1)


class RunConfig(Config):
    """What SFT and RL share. ``output`` is the run folder; ``resume`` continues from its newest checkpoint."""

    output: Path
    resume: bool = False
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    decoding: DecodingConfig = DecodingConfig()
    engine: EngineConfig = EngineConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

    def check_model(self, family: str, attention: str) -> None:
        """Raise ``ValueError`` where the run cannot train such a model."""

    @model_validator(mode="after")
    def _decodes_here(self) -> "RunConfig":
        if self.engine.rollout_engine != "local":
            raise ValueError(
                f"engine.rollout_engine={self.engine.rollout_engine} is for dare eval: a server keeps the weights it "
                "was started with, so training would roll out a policy that is never updated; set it to local"
            )
        return self


class SFTConfig(RunConfig):
    """``eos_padding`` how far EOS continues behind an answer as tokens to be learnt: "none", "one_block" (to the end of
    its block) or "to_length" (``decoding.max_new_tokens``, how LLaDA learns variable length).
    """

    eos_padding: Literal["none", "one_block", "to_length"] = "to_length"


class DPORunConfig(RunConfig):
    """Preference optimisation. ``train.batch`` counts pairs; ``eos_padding`` as in SFT, for both answers.

    ``reference_cache`` the folder where the starting model's scores are kept (None: the run's own); runs may share it.
    """

    dpo: DPOConfig = DPOConfig()
    eos_padding: Literal["none", "one_block", "to_length"] = "none"
    reference_cache: Path | None = None


class RLConfig(RunConfig):
    """Reinforcement learning: an algorithm on top of a run."""

    algorithm: AnyAlgorithm
    guard: GuardConfig = GuardConfig()

    def check_model(self, family: str, attention: str) -> None:
        """See ``RunConfig.check_model``: some algorithms need one kind of attention."""
        if reason := self.algorithm.refuses.get(attention):
            fix = "a block-causal one (SDAR, LLaDA2.x)" if attention == "full" else "a masked one (LLaDA, Dream)"
            raise ValueError(
                f"algorithm {self.algorithm.name} cannot train {family}, a model with {attention} attention: {reason}; "
                f"set model.path to {fix} or choose another algorithm"
            )

    @model_validator(mode="after")
    def _suits_the_model(self) -> "RLConfig":
        # a folder that is not there yet is judged when it is loaded
        if known := kind_of(newest_checkpoint(self.model.path)):
            self.check_model(*known)
        return self

    @model_validator(mode="after")
    def _holds_rows_out(self) -> "RLConfig":
        if self.guard.eval_every and self.task.test is None and "." in self.task.train:
            raise ValueError("guard.eval_every needs rows that are not trained on; set task.test")
        return self

    @model_validator(mode="after")
    def _explores(self) -> "RLConfig":
        if self.decoding.temperature == 0 and self.decoding.rule != "random":
            raise ValueError("decoding.temperature=0 makes every answer of a group the same; set it above 0")
        if reason := self.algorithm.conflict(self.decoding):
            raise ValueError(f"algorithm {self.algorithm.name} with this decoding: {reason}")
        return self
