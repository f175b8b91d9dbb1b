"""Traces of graded answers, for evaluations and training runs."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from dare.traces.record import trace
from dare.traces.trace import Trace
from dare.types import Example, Rollouts


def graded_traces(
    rollouts: Rollouts,
    examples: Sequence[Example],
    texts: Sequence[str],
    scores: Sequence[float],
    tokenizer: PreTrainedTokenizerBase,
    *,
    count: int,
    name: str,
    step: int | None = None,
) -> list[Trace]:
    """Return the traces of the first ``count`` answers; ``name`` and the training ``step`` label each of them."""
    return [
        trace(rollouts, row, tokenizer).model_copy(
            update={
                "name": name,
                "step": step,
                "prompt": "\n".join(turn["content"] for turn in example.prompt),
                "expected": example.answer or str(example.columns.get("ground_truth", "")),
                "completion": text,
                "score": score,
            }
        )
        for row, example, text, score in zip(range(count), examples, texts, scores, strict=False)
    ]
