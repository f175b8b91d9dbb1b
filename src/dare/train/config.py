"""The typed settings of a training run. Each group is one YAML section."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from dare.algorithms.registry import AnyAlgorithm
from dare.config import Config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig, OptimConfig
from dare.models.lora import LoraSettings


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


class RLConfig(RunConfig):
    """Reinforcement learning: an algorithm on top of a run."""

    algorithm: AnyAlgorithm

    @model_validator(mode="after")
    def _explores(self) -> "RLConfig":
        if self.decoding.temperature == 0 and self.decoding.rule != "random":
            raise ValueError("decoding.temperature=0 makes every answer of a group the same; set it above 0")
        if reason := self.algorithm.conflict(self.decoding):
            raise ValueError(f"algorithm {self.algorithm.name} with this decoding: {reason}")
        return self
