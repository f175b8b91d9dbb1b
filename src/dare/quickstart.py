"""The main job in one command: SFT from scratch, RL, evaluation before and after, and a report."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from rich.console import Console

from dare.algorithms.cj_grpo import CJGRPO
from dare.algorithms.registry import AnyAlgorithm
from dare.config import Config, dump_config
from dare.data.config import TaskConfig
from dare.decoding.config import DecodingConfig
from dare.engines.config import EngineConfig, OptimConfig
from dare.errors import DareError
from dare.evaluation.config import EvalConfig
from dare.evaluation.evaluate import Result, evaluate
from dare.evaluation.report import write_report
from dare.evaluation.run import show, write_results
from dare.files import is_used, write_atomically
from dare.traces.trace import Trace
from dare.train.config import ModelConfig, RLConfig, SFTConfig, TrainConfig
from dare.train.folder import CONFIG
from dare.train.log import METRICS
from dare.train.rl import train_rl
from dare.train.run import load_model
from dare.train.sft import train_sft


class PhaseConfig(Config):
    """One training phase of the quickstart."""

    train: TrainConfig
    optim: OptimConfig


class QuickstartConfig(Config):
    """Defaults fit two CPU cores and five minutes. ``seed`` sets initialisation, data order and all noise."""

    output: Path = Path("runs/quickstart")
    seed: int = Field(0, ge=0)
    model: Literal["tiny:masked", "tiny:block"] = "tiny:masked"
    task: TaskConfig = TaskConfig(train="digit_sums", test_count=450)
    decoding: DecodingConfig = DecodingConfig(max_new_tokens=12, block_size=12, steps=3)
    rollout_temperature: float = Field(1.0, gt=0)
    engine: EngineConfig = EngineConfig(micro_batch=128)
    algorithm: AnyAlgorithm = CJGRPO(group_size=8, updates=1, kl_coef=0.0)
    sft: PhaseConfig = PhaseConfig(
        train=TrainConfig(steps=400, batch=64),
        optim=OptimConfig(lr=2e-3, betas=(0.9, 0.98), warmup=50, schedule="cosine"),
    )
    rl: PhaseConfig = PhaseConfig(
        train=TrainConfig(steps=100, batch=16), optim=OptimConfig(lr=4e-4, betas=(0.9, 0.98), warmup=5)
    )


def quickstart(config: QuickstartConfig) -> Path:
    """Run the whole job and return the run folder."""
    folder = config.output
    if is_used(folder):
        raise DareError(f"output {str(folder)!r} is not empty; choose another with output=FOLDER or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CONFIG, dump_config(config))
    results, traces = [], []
    for name, phase in (("SFT", _sft), ("RL", _rl)):
        trained = phase(config)
        result, shown = _evaluate(config, f"after {name}", trained)
        results.append(result)
        traces += shown
    write_results(folder, results, traces)
    lines = [(folder / phase / METRICS).read_text() for phase in ("sft", "rl")]
    write_atomically(folder / METRICS, "".join(lines))
    report = write_report(folder, "DARE quickstart")
    show(results)
    Console().print(f"report: {report}\ncurves: {folder / 'curves.png'}", highlight=False)
    return folder


def _sft(config: QuickstartConfig) -> Path:
    shared = _shared(config, "sft", config.sft)
    return train_sft(SFTConfig(model=ModelConfig(path=config.model), **shared))


def _rl(config: QuickstartConfig) -> Path:
    decoding = config.decoding.model_copy(update={"temperature": config.rollout_temperature})
    shared = _shared(config, "rl", config.rl) | {"decoding": decoding}
    return train_rl(RLConfig(model=ModelConfig(path=str(config.output / "sft")), algorithm=config.algorithm, **shared))


def _shared(config: QuickstartConfig, phase: str, settings: PhaseConfig) -> dict[str, object]:
    train = settings.train.model_copy(update={"seed": config.seed})
    common = {"task": config.task, "decoding": config.decoding, "engine": config.engine}
    return {"output": config.output / phase, "train": train, "optim": settings.optim, **common}


def _evaluate(config: QuickstartConfig, name: str, trained: Path) -> tuple[Result, list[Trace]]:
    settings = EvalConfig(name=name, seed=config.seed, task=config.task, decoding=config.decoding, engine=config.engine)
    return evaluate(load_model(str(trained), config.seed, config.engine.precision, config.engine.device), settings)
