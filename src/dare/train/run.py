"""The life of a training run: load everything, create the folder, step, save, resume."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from dare.config import dump_config
from dare.data.loader import StatefulDataLoader, make_loader
from dare.data.source import Item, Items, load_items
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint, load_checkpoint
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.rewards.grade import check_rewards
from dare.train.config import RunConfig

CHECKPOINTS, CONFIG, _STATE = "checkpoints", "config.yaml", "trainer.json"


@dataclass
class Run:
    """A run that is ready to step. ``start`` is the number of steps already taken."""

    config: RunConfig
    folder: Path
    engine: LocalEngine
    tokenizer: PreTrainedTokenizerBase
    items: Items
    loader: "StatefulDataLoader[Item]"
    start: int = 0

    def batches(self) -> Iterator[tuple[int, list[Item]]]:
        """Yield ``(step, rows)`` for the steps still to take, and save when due."""
        train = self.config.train
        for offset, rows in enumerate(islice(self.loader, train.steps - self.start), start=1):
            step = self.start + offset
            yield step, rows
            if step == train.steps or (train.save_every and step % train.save_every == 0):
                self.save(step)

    def save(self, step: int) -> None:
        """Write a checkpoint under a temporary name, then rename it: a kill leaves the old ones whole."""
        parent = self.folder / CHECKPOINTS
        temporary, final = parent / f".tmp-{os.getpid()}", parent / f"step_{step:06d}"
        temporary.mkdir(parents=True, exist_ok=True)
        self.engine.save(temporary)
        (temporary / _STATE).write_text(json.dumps({"step": step, "loader": self.loader.state_dict()}))
        if final.exists():
            shutil.rmtree(final)
        temporary.replace(final)
        for old in checkpoints(self.folder)[: -self.config.train.keep]:
            shutil.rmtree(old)


def open_run(config: RunConfig, *, answers: bool, updates_per_step: int = 1) -> Run:
    """Load model, data and engine; only when all of that worked is the run folder created.

    ``answers`` tells that the rows need worked answers (SFT); without them they must be gradable (RL).
    """
    found = checkpoints(config.output)
    if config.output.exists() and any(config.output.iterdir()) and not config.resume:
        raise DareError(f"output {str(config.output)!r} is not empty; choose another or continue it with resume=true")
    if config.resume and not found:
        raise DareError(f"output {str(config.output)!r} holds no checkpoint to resume; start with resume=false")
    checkpoint = load_model(config.model.path, config.train.seed, config.engine.dtype)
    assert checkpoint.tokenizer is not None
    spec = checkpoint.model.spec
    items = load_items(
        config.task, "train", checkpoint.tokenizer, spec, config.decoding.max_new_tokens, answers=answers
    )
    if not answers:
        check_rewards([item.example for item in items.rows], config.task.rewards)
    engine = LocalEngine(checkpoint, config.engine, config.optim, config.train.steps * updates_per_step)
    loader = make_loader(items.rows, config.train.batch, config.train.seed)
    run = Run(config, config.output, engine, checkpoint.tokenizer, items, loader)
    return _resume(run, found[-1]) if config.resume else _create(run)


def load_model(path: str, seed: int = 0, dtype: str = "float32") -> Checkpoint:
    """Load model and tokenizer from a checkpoint folder, a run folder (its newest checkpoint) or a ``tiny:`` name."""
    newest = checkpoints(Path(path))
    checkpoint = load_checkpoint(str(newest[-1]) if newest else path, seed=seed, dtype=getattr(torch, dtype))
    if checkpoint.tokenizer is None:
        raise DareError(f"model {path!r} has no tokenizer files; copy tokenizer.json and tokenizer_config.json there")
    return checkpoint


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a run folder, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step_*"))


def _create(run: Run) -> Run:
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / CONFIG).write_text(dump_config(run.config))
    return run


def _resume(run: Run, newest: Path) -> Run:
    run.engine.load(newest)
    state = json.loads((newest / _STATE).read_text())
    run.loader.load_state_dict(state["loader"])
    run.start = state["step"]
    return run
