"""The life of a training run: load everything, create the folder, step, save, resume."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import torch

from dare.data.loader import Loader, open_loader
from dare.data.pairs import load_pairs
from dare.data.source import Item, Items, load_items, load_training_items
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.grading.grader import Grader
from dare.models.base import ModelSpec
from dare.models.checkpoint import Checkpoint, load_checkpoint
from dare.models.lora import add_adapter, merge_adapter
from dare.models.lora_files import adapter_base, is_adapter, load_adapter
from dare.models.tiny import TINY_PREFIX
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.progress import say_rows
from dare.train.best import Best, parse_best
from dare.train.config import RLConfig, RunConfig
from dare.train.folder import hold, newest_checkpoint
from dare.train.record import record
from dare.train.resume import choose_checkpoint, read_state, resume_command
from dare.train.saving import Saver
from dare.train.signals import Signals, StoppedError


@dataclass
class Run:
    """A run that is ready to step. ``start`` is the number of steps already taken; ``held_out`` what guards it (RL)."""

    config: RunConfig
    folder: Path
    engine: LocalEngine
    tokenizer: PreTrainedTokenizerBase
    items: Items
    loader: Loader
    held_out: list[Item]
    grader: Grader
    start: int = 0
    held: IO[str] | None = None
    best: Best | None = field(init=False)
    saver: Saver = field(init=False)

    def __post_init__(self) -> None:
        self.best, self.saver = parse_best(self.config.train.keep_best), Saver(self.folder, self.config.train)

    def batches(self) -> Iterator[tuple[int, list[Item]]]:
        """Yield ``(step, rows)`` for the steps still to take, and save when due.

        The first Ctrl-C or SIGTERM lets the step finish, saves it and raises ``StoppedError``.
        """
        steps = self.config.train.steps
        with self.saver, Signals() as signals:
            for step, rows in enumerate(islice(self.loader, steps - self.start), start=self.start + 1):
                yield step, rows
                self.saver.check()
                due = self._is_due(step)
                if due or signals.received:
                    self.saver.save(self.engine, self._state(step))
                if signals.received:
                    self.saver.wait()
                    raise self._interrupted(step, signals.received)
            self.saver.wait()

    def save(self, step: int) -> None:
        """Write a checkpoint and return when it is on the disk."""
        self.saver.save(self.engine, self._state(step))
        self.saver.wait()

    def _is_due(self, step: int) -> bool:
        train = self.config.train
        best = self.best is not None and self.best.is_new(step, self.folder)
        return best or step == train.steps or (train.save_every > 0 and step % train.save_every == 0)

    def _state(self, step: int) -> dict[str, Any]:
        best = None if self.best is None else self.best.state()
        return {"step": step, "loader": self.loader.state_dict(), "best": best}

    def _interrupted(self, step: int, number: int) -> StoppedError:
        total, how = self.config.train.steps, resume_command(self.config)
        then = "the run is complete" if step == total else f"continue with: {how}"
        return StoppedError(f"after step {step} of {total}, which is saved; {then}", number)


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
    chosen = choose_checkpoint(config)
    checkpoint = starting_model(config)
    assert checkpoint.tokenizer is not None
    check_model(config, checkpoint.model.spec)
    items = load_rows(config, checkpoint, answers=answers, pairs=pairs)
    say_rows(items)
    held_out = load_held_out(config, checkpoint)
    grader = Grader(config.task.rewards, config.task.grading)
    if not answers and not pairs:
        grader.check([item.example for item in [*items.rows, *held_out]])
    engine = LocalEngine(checkpoint, config.engine, config.optim, config.train.steps * updates_per_step)
    if reference:
        engine.keep_reference()
    if critic_lr is not None:
        engine.add_critic(critic_lr)
    loader = open_loader(items, config.train.batch, config.train.seed)
    run = Run(config, config.output, engine, checkpoint.tokenizer, items, loader, held_out, grader)
    run.held = hold(run.folder)
    if chosen is not None:
        _restore(run, chosen)
    record(config, run.start, ("train", "test") if held_out else ("train",))
    return run


def load_rows(config: RunConfig, checkpoint: Checkpoint, *, answers: bool, pairs: bool = False) -> Items:
    """Tokenise the training rows of a run; see ``open_run``."""
    tokenizer, spec, room = checkpoint.tokenizer, checkpoint.model.spec, config.decoding.max_new_tokens
    assert tokenizer is not None
    if pairs:
        return load_pairs(config.task, "train", tokenizer, spec, room)
    return load_training_items(config.task, tokenizer, spec, room, answers)


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
    checkpoint = load_model(path, seed, config.engine.precision, target)
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


def _restore(run: Run, checkpoint: Path) -> None:
    run.engine.load(checkpoint)
    state = read_state(checkpoint)
    run.loader.load_state_dict(state["loader"])
    run.start = state["step"]
    if run.best is not None:
        run.best.restore(state["best"])
