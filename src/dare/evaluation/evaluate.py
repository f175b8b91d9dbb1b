"""Accuracy on held-out rows, with the same decoder and the same graders as training."""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dare.data.source import load_items
from dare.decoding.describe import describe
from dare.diffusion.noise import key
from dare.evaluation.config import EvalConfig
from dare.grading.grade import Grade, kept
from dare.grading.grader import Grader
from dare.interval import wilson
from dare.models.chat import response_texts
from dare.models.checkpoint import Checkpoint
from dare.progress import decoding_bar
from dare.serving.rollout import rollout
from dare.traces.graded import graded_traces
from dare.traces.record import traces
from dare.traces.trace import Trace
from dare.types import Rollouts


@dataclass(frozen=True)
class Result:
    """``accuracy`` share of fully correct answers, its 95 % Wilson interval ``low``..``high``; ``mean_score`` of the
    weighted reward; ``parse_failures`` answers in which a reward found nothing to grade; ``reward_failures`` answers
    over which a reward failed, which count as ``task.grading.on_failure`` says; ``dropped`` rows
    that did not fit; ``length_mean`` tokens up to the first EOS; ``tokens_per_forward`` per row and model pass;
    ``plan`` how it was decoded.
    """

    name: str
    task: str
    count: int
    accuracy: float
    low: float
    high: float
    mean_score: float
    parse_failures: int
    reward_failures: int
    dropped: int
    length_mean: float
    tokens_per_forward: float
    seconds: float
    plan: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values; what a server did not tell is None."""
        values = asdict(self)
        return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}


def evaluate(checkpoint: Checkpoint, config: EvalConfig) -> tuple[Result, list[Trace]]:
    """Decode and grade the held-out rows; return the result and the traces of the first answers."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    assert tokenizer is not None
    items = load_items(config.task, "test", tokenizer, model.spec, config.decoding.max_new_tokens)
    examples, prompts = [item.example for item in items.rows], [item.prompt_ids for item in items.rows]
    index_B = torch.tensor([item.index for item in items.rows], device=config.engine.device)
    key_B = key(config.seed, "eval", index_B)
    with Grader(config.task.rewards, config.task.grading) as grader:
        grader.check(examples)
        began = time.perf_counter()
        with decoding_bar(config.name, len(prompts), len(prompts) * config.decoding.max_new_tokens) as watch:
            rollouts = rollout(model, config.engine, prompts, config.decoding, key_B, index_B, watch)
        texts = response_texts(tokenizer, rollouts)
        seconds = time.perf_counter() - began
        grades = grader.grade(texts, examples, lambda: traces(rollouts, tokenizer))
    result = _summarise(config, grades, rollouts, items.dropped, seconds, describe(config.decoding, model.spec))
    scores = [grade.total for grade in grades]
    shown = graded_traces(rollouts, examples, texts, scores, tokenizer, count=config.traces, name=config.name)
    return result, shown


def _summarise(
    config: EvalConfig, every: list[Grade], rollouts: Rollouts, dropped: int, seconds: float, plan: str
) -> Result:
    grades = kept(every)
    count, correct = len(grades), sum(g.correct for g in grades)
    low, high = wilson(correct, count)
    tokens = float(rollouts.length_B.sum())
    return Result(
        name=config.name,
        task=config.task.source("test")[0],
        count=count,
        accuracy=correct / count,
        low=low,
        high=high,
        mean_score=sum(g.total for g in grades) / count,
        parse_failures=sum(not g.parsed for g in grades),
        reward_failures=sum(g.failed for g in every),
        dropped=dropped,
        length_mean=tokens / len(every),
        tokens_per_forward=tokens / float(rollouts.forwards_B.sum()),
        seconds=seconds,
        plan=plan,
    )
