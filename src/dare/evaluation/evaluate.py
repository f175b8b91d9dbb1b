"""Accuracy on held-out rows, with the same decoder and the same graders as training."""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from dare.data.source import load_items
from dare.decoding.denoise import denoise
from dare.diffusion.noise import key
from dare.evaluation.config import EvalConfig
from dare.models.chat import response_texts
from dare.models.checkpoint import Checkpoint
from dare.rewards.grade import Grade, grade
from dare.types import Example, Rollouts


@dataclass(frozen=True)
class Result:
    """``accuracy`` share of fully correct answers, its 95 % Wilson interval ``low``..``high``; ``mean_score`` of the
    weighted reward; ``parse_failures`` answers in which no reward function found anything to grade; ``dropped`` rows
    that did not fit; ``length_mean`` tokens up to the first EOS; ``tokens_per_forward`` per row and model pass.
    """

    name: str
    task: str
    count: int
    accuracy: float
    low: float
    high: float
    mean_score: float
    parse_failures: int
    dropped: int
    length_mean: float
    tokens_per_forward: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


def evaluate(checkpoint: Checkpoint, config: EvalConfig) -> tuple[Result, list[dict[str, Any]]]:
    """Decode and grade the held-out rows; return the result and the traces of the first answers."""
    model, tokenizer = checkpoint.model.to(config.engine.device), checkpoint.tokenizer
    assert tokenizer is not None
    items = load_items(config.task, "test", tokenizer, model.spec, config.decoding.max_new_tokens)
    examples, prompts = [item.example for item in items.rows], [item.prompt_ids for item in items.rows]
    index_B = torch.tensor([item.index for item in items.rows], device=config.engine.device)
    key_B = key(config.seed, "eval", index_B)
    began = time.perf_counter()
    rollouts = denoise(model, prompts, config.decoding, key_B, index_B, rows=config.engine.decode_batch)
    texts = response_texts(tokenizer, rollouts)
    seconds = time.perf_counter() - began
    grades = grade(texts, examples, config.task.rewards)
    result = _summarise(config, grades, rollouts, items.dropped, seconds)
    shown = range(min(config.traces, len(texts)))
    return result, [trace(config.name, examples[i], rollouts, i, texts[i], grades[i], tokenizer) for i in shown]


def wilson(successes: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (E. B. Wilson, JASA 1927); sensible at 0 and 1."""
    share = successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def trace(
    name: str,
    example: Example,
    rollouts: Rollouts,
    row: int,
    text: str,
    graded: Grade | None,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Return one answer with the step at which each of its tokens was committed."""
    response_T = rollouts.seqs.response_BT[row]
    return {
        "name": name,
        "prompt": "\n".join(turn["content"] for turn in example.prompt),
        "expected": example.answer or str(example.columns.get("ground_truth", "")),
        "completion": text,
        "score": graded.total if graded else None,
        "tokens": [tokenizer.decode([token]) for token in rollouts.seqs.ids_BT[row][response_T].tolist()],
        "steps": rollouts.unmask_step_BT[row][response_T].tolist(),
    }


def _summarise(config: EvalConfig, grades: list[Grade], rollouts: Rollouts, dropped: int, seconds: float) -> Result:
    count, correct = len(grades), sum(g.correct for g in grades)
    low, high = wilson(correct, count)
    tokens = float(rollouts.length_B.sum())
    return Result(
        name=config.name,
        task=config.task.test or config.task.train,
        count=count,
        accuracy=correct / count,
        low=low,
        high=high,
        mean_score=sum(g.total for g in grades) / count,
        parse_failures=sum(not g.parsed for g in grades),
        dropped=dropped,
        length_mean=tokens / count,
        tokens_per_forward=tokens / float(rollouts.forwards_B.sum()),
        seconds=seconds,
    )
