"""``dare score``: the log-likelihood of answers by any estimator, with Monte-Carlo errors and costs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from dare.data.source import Item, answer_sequences, encode, load_items
from dare.diffusion.estimate import estimate
from dare.diffusion.estimators import ESTIMATORS, Budget, Estimator
from dare.diffusion.noise import key
from dare.errors import DareError, nearest
from dare.models.base import ModelSpec
from dare.models.checkpoint import Checkpoint
from dare.score_config import ScoreConfig
from dare.train.run import load_model
from dare.types import Example, Sequences

_BY_RECORD = "trajectory"
"""The estimator that needs more than a text."""


@dataclass(frozen=True)
class Score:
    """Means over rows: ``nats`` of an answer, its Monte-Carlo standard error, ``per_token`` nats; model passes of a
    row; ``seconds`` of all rows.
    """

    name: str
    kind: str
    nats: float
    error: float
    per_token: float
    forwards: float
    seconds: float


def score(model: str, names: Sequence[str], prompt: str | None, answer: str | None, config: ScoreConfig) -> list[Score]:
    """Score one answer, or the worked answers of a task, by the named estimators (none: all that apply); print them."""
    if (prompt is None) != (answer is None):
        missing = "--answer" if answer is None else "--prompt"
        raise DareError(f"{missing} is missing; give both --prompt and --answer, or neither to score a task")
    checkpoint = load_model(model, config.seed, config.engine.precision, config.engine.device)
    estimators = _estimators(names, checkpoint.model.spec, config)
    if prompt is None or answer is None:
        items, title = _task(checkpoint, config)
    else:
        items, title = [_item(checkpoint, prompt, answer)], "one answer"
    seqs = _sequences(items, checkpoint.model.spec, config)
    key_B = key(config.seed, "score", torch.tensor([item.index for item in items], device=config.engine.device))
    scores = [_score(checkpoint, seqs, key_B, estimator, config) for estimator in estimators]
    show(scores, f"{title}, {int(seqs.response_BT.sum()) / len(items):.4g} tokens")
    return scores


def show(scores: Sequence[Score], title: str) -> None:
    """Print a table of scores."""
    columns = ("nats", "± error", "nats/token", "forwards", "seconds")
    heads = [Column(name, justify="right", no_wrap=True) for name in columns]
    names = (Column("estimator", no_wrap=True), Column("estimates", no_wrap=True))
    table = Table(*names, *heads, title=title, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for s in scores:
        numbers = (f"{s.nats:.3f}", f"{s.error:.3f}" if s.error else "0", f"{s.per_token:.4f}")
        table.add_row(s.name, s.kind, *numbers, f"{s.forwards:g}", f"{s.seconds:.2f}")
    Console().print(table)


def _estimators(names: Sequence[str], spec: ModelSpec, config: ScoreConfig) -> list[Estimator]:
    known = [name for name in ESTIMATORS if name != _BY_RECORD]
    for name in names:
        if name == _BY_RECORD:
            raise DareError(f"estimator {name!r} reads a recorded rollout, not a text; use left_to_right")
        if name not in known:
            raise DareError(f"estimator {name!r} does not exist; {nearest(name, known)}")
    chosen = names or [name for name in known if name != "block" or spec.block_size]
    budget = Budget(config.count, config.beta, _block_size(spec, config))
    return [ESTIMATORS[name](budget) for name in chosen]


def _block_size(spec: ModelSpec, config: ScoreConfig) -> int | None:
    asked = config.block_size
    if asked is not None and (spec.block_size is None or asked % spec.block_size):
        own = f"blocks of {spec.block_size}; give a multiple" if spec.block_size else "no blocks; remove it"
        raise DareError(f"block_size={asked}: the model has {own}")
    return asked or spec.block_size


def _task(checkpoint: Checkpoint, config: ScoreConfig) -> tuple[list[Item], str]:
    assert checkpoint.tokenizer is not None
    room = config.decoding.max_new_tokens
    items = load_items(config.task, config.split, checkpoint.tokenizer, checkpoint.model.spec, room, answers=True)
    source, _ = config.task.source(config.split)
    left_out = f" ({items.dropped} left out)" if items.dropped else ""
    return items.rows, f"{source} {config.split}: mean of {len(items.rows)} answers{left_out}"


def _item(checkpoint: Checkpoint, prompt: str, answer: str) -> Item:
    assert checkpoint.tokenizer is not None
    spec, example = checkpoint.model.spec, Example(({"role": "user", "content": prompt},), {}, answer)
    prompt_ids, answer_ids = encode(checkpoint.tokenizer, example, spec, answers=True)
    if spec.mask_id in (*prompt_ids, *answer_ids):
        raise DareError("prompt or answer holds the model's mask token, which has no likelihood; remove it")
    return Item(0, example, prompt_ids, answer_ids)


def _sequences(items: Sequence[Item], spec: ModelSpec, config: ScoreConfig) -> Sequences:
    canvas = config.decoding.max_new_tokens
    longest = max(len(item.answer_ids) for item in items) + 1
    if config.eos_padding == "to_length" and longest > canvas:
        raise DareError(f"answer of {longest} tokens: longer than decoding.max_new_tokens={canvas}; raise it")
    block_size = config.decoding.block_for(spec)
    seqs = answer_sequences(items, spec, config.eos_padding, canvas, block_size).to(config.engine.device)
    if seqs.ids_BT.shape[1] > spec.context:
        raise DareError(f"{seqs.ids_BT.shape[1]} tokens do not fit the context of {spec.context}; shorten the text")
    return seqs


def _score(
    checkpoint: Checkpoint, seqs: Sequences, key_B: torch.Tensor, estimator: Estimator, config: ScoreConfig
) -> Score:
    began, found = time.perf_counter(), []
    for start in range(0, len(key_B), config.engine.micro_batch):
        rows = slice(start, start + config.engine.micro_batch)
        found.append(estimate(checkpoint.model, seqs.select(rows).trim(), estimator, key_B[rows], config.draws))
    mean_B, error_B = torch.cat([e.mean_B for e in found]), torch.cat([e.error_B for e in found])
    return Score(
        name=estimator.name,
        kind=estimator.kind,
        nats=float(mean_B.mean()),
        error=float(error_B.square().sum().sqrt()) / len(mean_B),
        per_token=float(mean_B.sum() / seqs.response_BT.sum()),
        forwards=float(sum(e.forwards_B.sum() for e in found)) / len(mean_B),
        seconds=time.perf_counter() - began,
    )
