"""``dare runs``: list the runs below a folder, or compare some of them."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from dare.errors import DareError
from dare.evaluation.plots import plot_overlay, series, smooth
from dare.evaluation.report import read_lines
from dare.traces.files import check_target
from dare.train.folder import CONFIG, checkpoints, is_running, step_of
from dare.train.log import METRICS
from dare.train.record import differences, flatten

HEADLINES = {"eval/accuracy": max, "eval/loss": min, "reward/mean": max, "accuracy": max, "loss": min}
"""The first of them that a run has logged stands for it."""
COMPARED = (*HEADLINES, "margin", "kl", "entropy", "length/mean", "grad_norm", "tokens_per_s", "memory_gb")
BARS, WIDTH = "▁▂▃▄▅▆▇█", 24
AGES = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


@dataclass(frozen=True)
class Run:
    """A run as its folder tells of it."""

    folder: Path
    config: dict[str, Any]

    @cached_property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """The lines of ``metrics.jsonl``."""
        return read_lines(self.folder / METRICS)

    @property
    def verb(self) -> str:
        """What it does, as its log says."""
        return self.metrics[-1]["phase"] if self.metrics else "–"

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return self.metrics[-1]["step"] if self.metrics else 0

    @property
    def state(self) -> str:
        """Whether it is "running", "finished" or "stopped" short of its steps."""
        if is_running(self.folder):
            return "running"
        saved = checkpoints(self.folder)
        return "finished" if saved and step_of(saved[-1]) >= self.config["train"]["steps"] else "stopped"

    @property
    def headline(self) -> str:
        """The metric that stands for it; empty where none does."""
        return next((name for name in HEADLINES if self.curve(name).size), "")

    def curve(self, metric: str) -> np.ndarray:
        """Values of a metric, smoothed as in the report."""
        values = series(self.metrics, self.verb, metric)[1]
        return smooth(values) if values.size else values


def runs(places: Sequence[Path], chart: Path | None) -> None:
    """List the runs below one folder; compare several, which must be runs themselves, also as a ``chart``."""
    check_target(chart, "--chart", ".png")
    if len(places) == 1:
        if chart is not None:
            raise DareError("--chart draws several runs over each other; name two or more")
        _list(places[0])
    else:
        _compare([_one(place) for place in places], chart)


def find_runs(folder: Path) -> Iterator[Run]:
    """Yield the runs in ``folder`` and below, in the order of their names; inside of a run none is looked for."""
    for place, inside, _ in os.walk(folder):
        run = _read(Path(place))
        inside[:] = [] if run else sorted(name for name in inside if not name.startswith("."))
        if run:
            yield run


def _read(folder: Path) -> Run | None:
    file = folder / CONFIG
    try:
        config = yaml.safe_load(file.read_text()) if file.is_file() else None
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    return Run(folder, config) if isinstance(config, dict) and {"output", "train"} <= config.keys() else None


def _one(folder: Path) -> Run:
    run = _read(folder)
    if run is None:
        raise DareError(f"{str(folder)!r} is no run folder, it has no {CONFIG} of a run; dare runs FOLDER lists them")
    return run


def _list(folder: Path) -> None:
    found = list(find_runs(folder))
    if not found:
        raise DareError(f"no run in {str(folder)!r} or below; give the folder that training runs were written to")
    wide = [Column(name, overflow="fold", min_width=6) for name in ("run", "model", "task", "job")]
    narrow = [Column(name, no_wrap=True) for name in ("step", "metric", "last", "best", "age", "state")]
    table = Table(*wide, *narrow, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for run in found:
        place = str(run.folder.relative_to(folder)) if run.folder != folder else run.folder.name
        table.add_row(place, *_row(run))
    Console().print(table)


def _row(run: Run) -> list[str]:
    name, config = run.headline, run.config
    values = run.curve(name) if name else np.array([])
    numbers = [f"{values[-1]:.4g}", f"{HEADLINES[name](values):.4g}"] if values.size else ["–", "–"]
    job = " ".join([run.verb, *filter(None, [config.get("algorithm", {}).get("name")])])
    what = [config["model"]["path"], str(config["task"]["train"]), job, f"{run.step}/{config['train']['steps']}"]
    return [*what, name or "–", *numbers, _age(run.folder), run.state]


def _compare(found: Sequence[Run], chart: Path | None) -> None:
    labels = _labels([run.folder for run in found])
    settings = differences(*(flatten({**run.config, "output": None}) for run in found))
    table = _table("setting", *labels)
    for name, values in settings.items():
        table.add_row(name, *("–" if value is None else str(value) for value in values))
    Console().print(table if settings else "same settings")
    table = _table("metric: last, curve", *labels)
    for metric in COMPARED:
        curves = [run.curve(metric) for run in found]
        if any(curve.size for curve in curves):
            table.add_row(metric, *_lines(curves))
    Console().print(table)
    if chart is not None:
        plot_overlay({label: run.metrics for label, run in zip(labels, found, strict=True)}, chart)
        Console(stderr=True).print(f"chart: {chart}", highlight=False, markup=False, soft_wrap=True)


def _lines(curves: Sequence[np.ndarray]) -> list[str]:
    """Last value and curve of each run, on one scale from the lowest value of all to the highest."""
    values = np.concatenate(curves)
    low, span = values.min(), max(values.max() - values.min(), 1e-12)
    return [f"{curve[-1]:.4g}  {_bars((curve - low) / span)}" if curve.size else "–" for curve in curves]


def _bars(share: np.ndarray) -> str:
    kept = share[np.linspace(0, len(share) - 1, min(WIDTH, len(share))).round().astype(int)]
    return "".join(BARS[round(value * (len(BARS) - 1))] for value in kept)


def _labels(folders: Sequence[Path]) -> list[str]:
    names = [folder.name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _age(folder: Path) -> str:
    """Time since the last metrics, or since the run was made."""
    newest = folder / METRICS if (folder / METRICS).exists() else folder / CONFIG
    seconds = max(0.0, time.time() - newest.stat().st_mtime)
    return next(f"{seconds // size:.0f} {unit}" for unit, size in AGES if seconds >= size or size == 1)


def _table(*columns: str) -> Table:
    return Table(*(Column(name, overflow="fold") for name in columns), box=SIMPLE_HEAD, pad_edge=False)
