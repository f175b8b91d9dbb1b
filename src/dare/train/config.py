"""The typed settings of a training run. Each group is one YAML section."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from dare.algorithms.dpo import DPOConfig
from dare.algorithms.registry import AnyAlgorithm
from dare.algorithms.sft_config import ObjectiveConfig
from dare.config import Config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig, OptimConfig
from dare.models.checkpoint import kind_of
from dare.models.lora import LoraSettings
from dare.train.best import parse_best
from dare.train.folder import newest_checkpoint
from dare.train.tracker import TrackerName, check_installed


class ModelConfig(Config):
    """``path`` a checkpoint folder, a run folder, or an embedded model: ``tiny:masked``, ``tiny:block``.

    ``lora`` trains an adapter on the frozen model instead of all weights.
    """

    path: str = "tiny:masked"
    lora: LoraSettings | None = None


class TrainConfig(Config):
    """``batch`` rows (SFT) or prompts (RL) per step; ``docs/checkpoints.md`` explains saving and trackers.

    ``save_every`` 0: save at the end only; ``keep`` newest checkpoints; ``keep_best`` METRIC:max or METRIC:min also
    keeps that of the step with the best value; ``save_async`` writes in the background.
    ``trackers`` also show the metrics: tensorboard, wandb, trackio, mlflow, swanlab.
    ``log_rollouts`` answers of a step are kept with their denoising steps, for about a hundred steps of a run (RL).
    """

    steps: PositiveInt = 100
    batch: PositiveInt = 16
    seed: int = Field(0, ge=0)
    save_every: int = Field(0, ge=0)
    keep: PositiveInt = 2
    keep_best: str | None = None
    save_async: bool = False
    trackers: tuple[TrackerName, ...] = ("tensorboard",)
    log_rollouts: int = Field(2, ge=0)

    @field_validator("keep_best")
    @classmethod
    def _names_a_goal(cls, value: str | None) -> str | None:
        parse_best(value)
        return value

    @field_validator("trackers")
    @classmethod
    def _are_installed(cls, value: tuple[TrackerName, ...]) -> tuple[TrackerName, ...]:
        check_installed(value)
        return value

    @model_validator(mode="after")
    def _saves_in_between(self) -> "TrainConfig":
        if self.save_async and not self.save_every and not self.keep_best:
            raise ValueError("save_async has no effect on the one save at the end; set save_every, or remove it")
        return self


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
    """What SFT, DPO and RL share. ``output`` is the run folder.

    ``resume`` true continues from its newest checkpoint, a number from that of this step.
    """

    verb: ClassVar[str]
    output: Path
    resume: bool | int = False
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    decoding: DecodingConfig = DecodingConfig()
    engine: EngineConfig = EngineConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

    @field_validator("resume", mode="before")
    @classmethod
    def _is_a_step(cls, value: object) -> object:
        if not isinstance(value, bool) and not (isinstance(value, int) and value > 0):
            raise ValueError("give true, false or the step of a checkpoint")
        return value

    @property
    def evaluates(self) -> bool:
        """Whether metrics named ``eval/`` are logged."""
        return False

    def check_model(self, family: str, attention: str) -> None:
        """Raise ``ValueError`` where the run cannot train such a model."""

    @model_validator(mode="after")
    def _suits_the_model(self) -> "RunConfig":
        # a folder that is not there yet is judged when it is loaded
        if known := kind_of(newest_checkpoint(self.model.path)):
            self.check_model(*known)
        return self

    @model_validator(mode="after")
    def _measures_what_is_best(self) -> "RunConfig":
        best = self.train.keep_best
        if best and best.startswith("eval/") and not self.evaluates:
            raise ValueError(
                f"train.keep_best={best}: this run evaluates nothing; set guard.eval_every (dare rl) or name "
                "another metric"
            )
        return self

    @model_validator(mode="after")
    def _decodes_here(self) -> "RunConfig":
        if self.engine.rollout_engine != "local":
            raise ValueError(
                f"engine.rollout_engine={self.engine.rollout_engine} is for dare eval: a server keeps the weights it "
                "was started with, so training would roll out a policy that is never updated; set it to local"
            )
        return self


class SFTConfig(RunConfig):
    """Supervised fine-tuning on answers.

    ``eos_padding`` how far EOS continues behind an answer as tokens to be learnt: "none", "one_block" (to the end of
    its block), "to_length" (``decoding.max_new_tokens``), or "auto": as far as a decoder of such a model reads.
    """

    verb: ClassVar[str] = "sft"
    objective: ObjectiveConfig = ObjectiveConfig()
    eos_padding: Literal["auto", "none", "one_block", "to_length"] = "auto"

    def padding_for(self, attention: str) -> str:
        """What "auto" is for a model of this kind."""
        if self.eos_padding != "auto":
            return self.eos_padding
        # a masked model sees its whole canvas; a block-causal one stops behind the block that holds the first EOS
        return "one_block" if attention == "block_causal" else "to_length"

    def check_model(self, family: str, attention: str) -> None:
        """See ``RunConfig.check_model``: some objectives need one kind of attention."""
        if reason := self.objective.conflict(family, attention):
            raise ValueError(f"objective.{reason}")

    @model_validator(mode="after")
    def _has_a_record(self) -> "SFTConfig":
        if self.objective.order != "trace":
            return self
        if self.task.stream:
            raise ValueError("objective.order=trace reads the whole record before it starts; remove task.stream")
        if not str(self.task.train).endswith(".jsonl"):
            raise ValueError(
                f"objective.order=trace learns how recorded answers were decoded, and task.train={self.task.train!r} "
                "has no record; give the rollouts.jsonl of dare rl or dare generate --save"
            )
        return self


class DPORunConfig(RunConfig):
    """Preference optimisation. ``train.batch`` counts pairs; ``eos_padding`` as in SFT, for both answers.

    ``reference_cache`` the folder where the starting model's scores are kept (None: the run's own); runs may share it.
    """

    verb: ClassVar[str] = "dpo"
    dpo: DPOConfig = DPOConfig()
    eos_padding: Literal["none", "one_block", "to_length"] = "none"
    reference_cache: Path | None = None


class RLConfig(RunConfig):
    """Reinforcement learning: an algorithm on top of a run."""

    verb: ClassVar[str] = "rl"
    algorithm: AnyAlgorithm
    guard: GuardConfig = GuardConfig()

    @property
    def evaluates(self) -> bool:
        """See ``RunConfig.evaluates``."""
        return self.guard.eval_every > 0

    def check_model(self, family: str, attention: str) -> None:
        """See ``RunConfig.check_model``: some algorithms need one kind of attention."""
        if reason := self.algorithm.refuses.get(attention):
            fix = "a block-causal one (SDAR, LLaDA2.x)" if attention == "full" else "a masked one (LLaDA, Dream)"
            raise ValueError(
                f"algorithm {self.algorithm.name} cannot train {family}, a model with {attention} attention: {reason}; "
                f"set model.path to {fix} or choose another algorithm"
            )

    @model_validator(mode="after")
    def _holds_rows_out(self) -> "RLConfig":
        if self.guard.eval_every and self.task.test is None and not self.task.generated:
            raise ValueError("guard.eval_every needs rows that are not trained on; set task.test")
        return self

    @model_validator(mode="after")
    def _explores(self) -> "RLConfig":
        if self.decoding.temperature == 0 and self.decoding.rule != "random":
            raise ValueError("decoding.temperature=0 makes every answer of a group the same; set it above 0")
        if reason := self.algorithm.conflict(self.decoding):
            raise ValueError(f"algorithm {self.algorithm.name} with this decoding: {reason}")
        return self
