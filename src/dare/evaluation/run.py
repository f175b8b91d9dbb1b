"""Evaluate a model, print the table and, where asked, write the files."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from dare.errors import DareError
from dare.evaluation.config import EvalConfig
from dare.evaluation.evaluate import Result, evaluate
from dare.files import write_atomically
from dare.progress import say_plan
from dare.traces.files import ROLLOUTS, write_traces
from dare.traces.trace import Trace
from dare.train.run import load_model


def evaluate_and_show(model: str, config: EvalConfig) -> Result:
    """Run one evaluation; ``config.output`` gets ``eval.json`` and ``rollouts.jsonl``."""
    if config.output and (config.output / "eval.json").exists():
        raise DareError(f"output {str(config.output)!r} already holds an eval.json; choose another folder")
    device = config.engine.device if config.engine.rollout_engine == "local" else "meta"
    checkpoint = load_model(model, config.seed, config.engine.precision, device)
    say_plan(config.decoding, checkpoint.model.spec)
    result, traces = evaluate(checkpoint, config)
    if config.output:
        write_results(config.output, [result], traces)
    show([result])
    return result


def write_results(folder: Path, results: Sequence[Result], traces: Sequence[Trace]) -> None:
    """Write ``eval.json`` and ``rollouts.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "eval.json", json.dumps([result.as_dict() for result in results], indent=2))
    write_traces(folder / ROLLOUTS, traces)


def show(results: Sequence[Result]) -> None:
    """Print a table of results."""
    columns = ("answers", "accuracy", "95 % interval", "score", "unparsed", "tokens/pass")
    table = Table(
        Column("", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in columns),
        title=results[0].task,
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for r in results:
        numbers = (str(r.count), f"{r.accuracy:.1%}", f"{r.low:.1%} to {r.high:.1%}", f"{r.mean_score:.3f}")
        table.add_row(r.name, *numbers, str(r.parse_failures), f"{r.tokens_per_forward:.2f}")
    Console().print(table)
    for r in results:
        if r.reward_failures:
            Console().print(f"{r.name}: a reward failed over {r.reward_failures} answers")
        if r.dropped:
            Console().print(f"{r.name}: {r.dropped} rows left out (too long for the limits, or without a ground truth)")
