"""The life of a training run: load everything, create the folder, step, save, resume."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import torch

from dare.config import dump_config
from dare.data.loader import StatefulDataLoader, make_loader
from dare.data.pairs import load_pairs
from dare.data.source import Item, Items, load_items
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.files import folder_atomically, is_used
from dare.models.base import ModelSpec
from dare.models.checkpoint import Checkpoint, load_checkpoint
from dare.models.lora import add_adapter, merge_adapter
from dare.models.lora_files import adapter_base, is_adapter, load_adapter
from dare.models.tiny import TINY_PREFIX
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.rewards.grade import check_rewards
from dare.train.config import RLConfig, RunConfig
from dare.train.folder import CHECKPOINTS, checkpoints, newest_checkpoint

CONFIG, _STATE = "config.yaml", "trainer.json"


@dataclass
class Run:
    """A run that is ready to step. ``start`` is the number of steps already taken; ``held_out`` what guards it (RL)."""

    config: RunConfig
    folder: Path
    engine: LocalEngine
    tokenizer: PreTrainedTokenizerBase
    items: Items
    loader: "StatefulDataLoader[Item]"
    held_out: list[Item] = field(default_factory=list)
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
        final = self.folder / CHECKPOINTS / f"step_{step:06d}"
        with folder_atomically(final) as temporary:
            self.engine.save(temporary)
            (temporary / _STATE).write_text(json.dumps({"step": step, "loader": self.loader.state_dict()}))
            if final.exists():
                shutil.rmtree(final)
        for old in checkpoints(self.folder)[: -self.config.train.keep]:
            shutil.rmtree(old)


def open_run(
    config: RunConfig,
    *,
    answers: bool,
    pairs: bool = False,
    updates_per_step: int = 1,
    reference: bool = False,
    critic_lr: float | None = None,
) -> Run:
    """Load model, data and engine; only when all of that worked is the run folder created.

    ``answers`` tells that the rows need worked answers (SFT), ``pairs`` a better and a worse one; else they must be
    gradable (RL). ``reference`` keeps the model the run started from as the reference policy, also when the run is
    resumed; ``critic_lr`` puts a value model beside the policy that learns at this rate.
    """
    found = checkpoints(config.output)
    if is_used(config.output) and not config.resume:
        raise DareError(f"output {str(config.output)!r} is not empty; choose another or continue it with resume=true")
    if config.resume and not found:
        raise DareError(f"output {str(config.output)!r} holds no checkpoint to resume; start with resume=false")
    checkpoint = starting_model(config)
    assert checkpoint.tokenizer is not None
    check_model(config, checkpoint.model.spec)
    items = load_rows(config, checkpoint, answers=answers, pairs=pairs)
    held_out = load_held_out(config, checkpoint)
    if not answers and not pairs:
        check_rewards([item.example for item in [*items.rows, *held_out]], config.task.rewards)
    engine = LocalEngine(checkpoint, config.engine, config.optim, config.train.steps * updates_per_step)
    if reference:
        engine.keep_reference()
    if critic_lr is not None:
        engine.add_critic(critic_lr)
    loader = make_loader(items.rows, config.train.batch, config.train.seed)
    run = Run(config, config.output, engine, checkpoint.tokenizer, items, loader, held_out)
    return _resume(run, found[-1]) if config.resume else _create(run)


def load_rows(config: RunConfig, checkpoint: Checkpoint, *, answers: bool, pairs: bool = False) -> Items:
    """Tokenise the training rows of a run; see ``open_run``."""
    tokenizer, spec, room = checkpoint.tokenizer, checkpoint.model.spec, config.decoding.max_new_tokens
    assert tokenizer is not None
    if pairs:
        return load_pairs(config.task, "train", tokenizer, spec, room)
    return load_items(config.task, "train", tokenizer, spec, room, answers=answers)


def load_held_out(config: RunConfig, checkpoint: Checkpoint) -> list[Item]:
    """Tokenise the rows that guard a run; none where nothing evaluates them."""
    if not isinstance(config, RLConfig) or not config.guard.eval_every:
        return []
    task, room = config.task, config.decoding.max_new_tokens
    task = task.model_copy(update={"test_count": min(task.test_count, config.guard.eval_count)})
    assert checkpoint.tokenizer is not None
    return load_items(task, "test", checkpoint.tokenizer, checkpoint.model.spec, room).rows


def check_model(config: RunConfig, spec: ModelSpec) -> None:
    """Raise ``DareError`` where the run cannot train a model of this kind."""
    try:
        config.check_model(spec.family, spec.attention)
    except ValueError as error:
        raise DareError(str(error)) from error


def starting_model(config: RunConfig, device: str | None = None) -> Checkpoint:
    """Load the model a run starts from onto ``device`` (None: ``engine.device``).

    With ``model.lora`` it is frozen and carries a new adapter.
    """
    path, lora, seed = newest_checkpoint(config.model.path), config.model.lora, config.train.seed
    if lora and lora.four_bit and not config.engine.device.startswith("cuda"):
        raise DareError(
            f"model.lora.four_bit=true needs a GPU; engine.device is {config.engine.device!r}, set it to cuda"
        )
    # weights shrink to four bits on their way to the GPU, which need not hold them whole
    target = "cpu" if lora and lora.four_bit else device or config.engine.device
    checkpoint = load_model(path, seed, config.engine.dtype, target)
    if lora:
        # the weights of an embedded model follow from its name and the seed
        revision = str(seed) if path.startswith(TINY_PREFIX) else None
        add_adapter(checkpoint.model, lora, seed, base=path, revision=revision)
    return checkpoint


def load_model(path: str, seed: int = 0, dtype: str = "float32", device: str = "cpu") -> Checkpoint:
    """Load model and tokenizer from a checkpoint folder, a run folder (its newest checkpoint) or a ``tiny:`` name.

    Weights go from the files to ``device`` at once. An adapter is merged into its base model.
    """
    path = newest_checkpoint(path)
    if is_adapter(Path(path)):
        return _load_merged(Path(path), dtype, device)
    _check_device(device)
    checkpoint = load_checkpoint(path, seed=seed, dtype=getattr(torch, dtype), device=device)
    if checkpoint.tokenizer is None:
        raise DareError(f"model {path!r} has no tokenizer files; copy tokenizer.json and tokenizer_config.json there")
    return checkpoint


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise DareError(f"engine.device={device!r} cannot be used here ({reason}); set it to cpu") from error


def _load_merged(folder: Path, dtype: str, device: str) -> Checkpoint:
    base, revision = adapter_base(folder)
    embedded = base.startswith(TINY_PREFIX)
    if not embedded and not Path(base).is_dir():
        raise DareError(
            f"{folder}: base model {base!r} is not there; correct base_model_name_or_path in adapter_config.json"
        )
    checkpoint = load_model(base, int(revision or 0) if embedded else 0, dtype, device)
    merge_adapter(load_adapter(checkpoint.model, folder))
    return checkpoint


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
