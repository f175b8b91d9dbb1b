"""A few rollouts of a run, kept to be looked at."""

from collections.abc import Sequence

from dare.data.source import Item
from dare.grading.grade import Grade
from dare.traces.files import ROLLOUTS, append_traces
from dare.traces.graded import graded_traces
from dare.train.run import Run
from dare.types import Rollouts

_MOMENTS = 100
"""Steps of a run from which rollouts are kept, so that a long run's file stays small."""


def keep_rollouts(
    run: Run, step: int, rollouts: Rollouts, rows: Sequence[Item], texts: Sequence[str], grades: Sequence[Grade]
) -> None:
    """Add the first ``train.log_rollouts`` answers of a step to the run's ``rollouts.jsonl``, if the step is due."""
    train = run.config.train
    due = step == 1 or step % -(-train.steps // _MOMENTS) == 0
    if train.log_rollouts and due:
        examples, name = [row.example for row in rows], f"step {step}"
        scores = [grade.total for grade in grades]
        kept = graded_traces(
            rollouts, examples, texts, scores, run.tokenizer, count=train.log_rollouts, name=name, step=step
        )
        append_traces(run.folder / ROLLOUTS, kept)
