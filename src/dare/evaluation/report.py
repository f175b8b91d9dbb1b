"""The report of a run: one self-contained HTML page and the learning curves as a PNG."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dare.errors import DareError
from dare.evaluation.plots import panel_svg, panels, plot_curves, series
from dare.files import write_atomically
from dare.traces.files import ROLLOUTS, read_traces
from dare.traces.page import cards, environment
from dare.traces.trace import Trace
from dare.train.watch import PREFIX, SIGNS


@dataclass(frozen=True)
class Run:
    """What a run folder holds; a file that is absent leaves its field empty."""

    metrics: tuple[dict[str, Any], ...] = ()
    evals: tuple[dict[str, Any], ...] = ()
    traces: tuple[Trace, ...] = ()
    config: str = ""


@dataclass(frozen=True)
class TaskResults:
    """The evaluations of one task, in the order they were made."""

    task: str
    rows: tuple[dict[str, Any], ...]

    @property
    def gain(self) -> float | None:
        """Accuracy of the last evaluation minus that of the first; ``None`` when there are no two to compare."""
        first, last = self.rows[0].get("accuracy"), self.rows[-1].get("accuracy")
        return None if len(self.rows) < 2 or first is None or last is None else last - first

    @property
    def separate(self) -> bool:
        """Whether the 95% intervals of the first and the last evaluation do not overlap."""
        first, last = self.rows[0], self.rows[-1]
        return bool(first["high"] < last["low"] or last["high"] < first["low"])


@dataclass(frozen=True)
class Alarm:
    """An alarm that was raised ``first`` at this step and at ``count`` of the ``total`` steps it was looked for."""

    name: str
    first: int
    count: int
    total: int
    meaning: str


def read_run(folder: Path) -> Run:
    """Read a run folder; every file in it is optional."""
    if not folder.is_dir():
        raise DareError(f"run folder {str(folder)!r} does not exist; pass the folder a training run wrote")
    config = folder / "config.yaml"
    return Run(
        metrics=read_lines(folder / "metrics.jsonl"),
        evals=_read_list(folder / "eval.json"),
        traces=tuple(read_traces(folder)) if (folder / ROLLOUTS).exists() else (),
        config=config.read_text("utf-8") if config.exists() else "",
    )


def write_report(folder: Path, title: str) -> Path:
    """Write ``curves.png`` and ``report.html`` into a run folder and return the path of the page."""
    run = read_run(folder)
    plot_curves(run.metrics, folder / "curves.png")
    out = folder / "report.html"
    write_atomically(out, render(run, title))
    return out


def render(run: Run, title: str) -> str:
    """Return the report as HTML; all text of the run is escaped."""
    templates = environment()
    templates.filters["percent"] = _percent
    prompts, prompts_total = cards(run.traces)
    return templates.get_template("evaluation/report.html.j2").render(
        title=title,
        run=run,
        steps={phase: max(row["step"] for row in rows) for phase, rows in _by(run.metrics, "phase").items()},
        results=[TaskResults(task, tuple(rows)) for task, rows in _by(run.evals, "task").items()],
        curves=[Markup(panel_svg(panel, run.metrics)) for panel in panels(run.metrics)],
        alarms=alarms(run.metrics),
        prompts=prompts,
        prompts_total=prompts_total,
        finals={phase: _last_values(rows) for phase, rows in _by(run.metrics, "phase").items()},
    )


def alarms(metrics: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return the alarms that were raised, in the order of their first steps; of a step logged twice the last counts."""
    found = []
    for name, sign in SIGNS.items():
        steps, values = series(metrics, "rl", PREFIX + name)
        raised = steps[values > 0]
        if len(raised):
            found.append(Alarm(name, int(raised[0]), len(raised), len(steps), sign.meaning))
    return sorted(found, key=lambda alarm: alarm.first)


def read_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """Read a JSONL file; one that is absent has no lines."""
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
    # A trainer that was killed may leave half a last line.
    whole = [line for line in lines if line.endswith("\n") or _is_json(line)]
    return tuple(_parse(line, f"{path}:{i}") for i, line in enumerate(whole, 1) if line.strip())


def _read_list(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(_parse(path.read_text("utf-8"), str(path))) if path.exists() else ()


def _parse(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DareError(f"{source} is not valid JSON ({error}); write it again or remove it") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def _by(rows: Iterable[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _last_values(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    last = {name: value for row in rows for name, value in row.items() if value is not None}
    names = sorted(name for name in last.keys() - {"phase", "step", "time_s"} if not name.startswith(PREFIX))
    groups = {prefix: list(members) for prefix, members in groupby(names, lambda name: name.split("/")[0])}
    single = [members[0] for members in groups.values() if len(members) == 1]
    several = {prefix: members for prefix, members in groups.items() if len(members) > 1}
    return {prefix: {name: last[name] for name in members} for prefix, members in {**several, "other": single}.items()}


def _percent(value: object) -> str:
    return f"{100 * value:.1f}%" if isinstance(value, int | float) else "–"
