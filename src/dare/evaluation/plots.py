"""Learning curves of a run, as one PNG for the run folder and as one SVG per panel for the report."""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from dare.files import write_atomically

INK, PAPER = "#5b6472", "#ffffff"
CATEGORIES = ("#3f7fd6", "#e0793a", "#2f9e77", "#a864c9", "#c79a1e", "#d4537e")
NOISE_LEVELS = ("#4a6fdc", "#8a5fd0", "#c4559f", "#e0685c", "#e59a3a")
COLUMNS, PANEL_SIZE, MAX_POINTS = 3, (4.0, 2.6), 240

_EVAL = {"eval/accuracy": "accuracy", "eval/baseline": "untrained"}


@dataclass(frozen=True)
class Panel:
    """One set of axes: the metrics drawn as lines (name to legend label) and an optional min-max band."""

    title: str
    phase: str
    lines: Mapping[str, str]
    band: tuple[str, str] | None = None
    colors: Sequence[str] = CATEGORIES


def panels(metrics: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return the panels this run has data for."""
    names = sorted({name for row in metrics for name in row})
    noise = {n: n.removeprefix("loss/t_").replace("_", "–") for n in names if n.startswith("loss/t_")}
    spread = {"reward/mean", "reward/min", "reward/max"}
    functions = {n: n.removeprefix("reward/") for n in names if n.startswith("reward/") and n not in spread}
    groups = {"groups/all_solved": "all solved", "groups/none_solved": "none solved"}
    candidates = [
        Panel("SFT loss", "sft", {"loss": "loss"}),
        Panel("SFT loss by noise level t", "sft", noise, colors=NOISE_LEVELS),
        Panel("SFT gradient norm", "sft", {"grad_norm": "gradient norm"}),
        Panel("Held-out accuracy, 95 % interval", "rl", _EVAL, band=("eval/low", "eval/high")),
        Panel("Reward, mean and range", "rl", {"reward/mean": "mean"}, band=("reward/min", "reward/max")),
        # With a single function this would repeat the mean.
        Panel("Reward by function", "rl", functions if len(functions) > 1 else {}),
        Panel("Prompt groups", "rl", {**groups, "groups/zero_variance": "zero variance"}),
        Panel("Clip fraction", "rl", {"clip_fraction": "clip fraction"}),
        Panel("KL to the reference", "rl", {"kl": "KL"}),
        Panel("Entropy", "rl", {"entropy": "entropy"}),
        Panel("Response length, mean and range", "rl", {"length/mean": "mean"}, band=("length/min", "length/max")),
        Panel("Tokens per forward pass", "rl", {"tokens_per_forward": "tokens"}),
        Panel("RL gradient norm", "rl", {"grad_norm": "gradient norm"}),
    ]
    return [p for p in candidates if any(series(metrics, p.phase, name)[0].size for name in p.lines)]


def series(metrics: Iterable[Mapping[str, Any]], phase: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and finite values of one metric; of a step logged twice (a resumed run) the last counts."""
    found = {row["step"]: row[name] for row in metrics if row.get("phase") == phase and _finite(row.get(name))}
    steps = sorted(found)
    return np.array(steps, dtype=float), np.array([found[step] for step in steps], dtype=float)


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving average over about a twentieth of the curve; the window shrinks at the ends."""
    half = len(values) // 40
    window = np.ones(2 * half + 1)
    total, count = (np.convolve(x, window)[half : half + len(x)] for x in (values, np.ones_like(values)))
    return total / count


def plot_curves(metrics: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write all panels that have data to ``out`` as one PNG; without data write nothing."""
    _plot(panels(metrics), metrics, out)


def plot_overlay(runs: Mapping[str, Sequence[Mapping[str, Any]]], out: Path) -> None:
    """Write the panels of several runs, label to metrics, as one PNG; of a panel with several lines the first."""
    everything = [row for metrics in runs.values() for row in metrics]
    marked = [
        {"phase": row["phase"], "step": row["step"], **{f"{label}:{name}": value for name, value in row.items()}}
        for label, metrics in runs.items()
        for row in metrics
    ]
    shown = [
        Panel(panel.title.split(",")[0], panel.phase, {f"{label}:{next(iter(panel.lines))}": label for label in runs})
        for panel in panels(everything)
    ]
    _plot(shown, marked, out)


def _plot(shown: Sequence[Panel], metrics: Sequence[Mapping[str, Any]], out: Path) -> None:
    if not shown:
        return
    columns = min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure((PANEL_SIZE[0] * columns, PANEL_SIZE[1] * rows), dpi=150, layout=layout, facecolor=PAPER)
    FigureCanvasAgg(figure)
    for i, panel in enumerate(shown):
        _draw(figure.add_subplot(rows, columns, i + 1), panel, metrics)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    write_atomically(out, image.getvalue())


def panel_svg(panel: Panel, metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return one panel as an ``<svg>`` element whose text and axes take the colour of the page around it."""
    figure = Figure(PANEL_SIZE, layout="constrained")
    _draw(figure.add_subplot(), panel, metrics)
    buffer = io.StringIO()
    # The title as salt keeps identifiers apart when several panels share a page, and the file reproducible.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": panel.title}):
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = buffer.getvalue()
    svg = re.sub(r' xmlns\S*="[^"]*"|(?<=<g) id="[^"]*"', "", svg[svg.index("<svg") :])
    return svg.replace(INK, "currentColor")


def _draw(axes: Axes, panel: Panel, metrics: Sequence[Mapping[str, Any]]) -> None:
    if panel.band:
        _draw_band(axes, panel, metrics)
    for i, (name, label) in enumerate(panel.lines.items()):
        steps, values = series(metrics, panel.phase, name)
        if not steps.size:
            continue
        color, kept = panel.colors[i % len(panel.colors)], _thin(len(steps))
        axes.plot(steps[kept], values[kept], color=color, alpha=0.25, linewidth=0.8)
        axes.plot(steps[kept], smooth(values)[kept], color=color, linewidth=1.8, label=label)
        if len(steps) == 1:
            axes.plot(steps, values, color=color, marker="o", markersize=4)
    _style(axes, panel)


def _draw_band(axes: Axes, panel: Panel, metrics: Sequence[Mapping[str, Any]]) -> None:
    low, high = (dict(zip(*series(metrics, panel.phase, name), strict=True)) for name in panel.band or ())
    steps = np.array(sorted(low.keys() & high.keys()))
    steps = steps[_thin(len(steps))]
    bounds = [low[s] for s in steps], [high[s] for s in steps]
    axes.fill_between(steps, *bounds, color=panel.colors[0], alpha=0.12, linewidth=0)


def _style(axes: Axes, panel: Panel) -> None:
    many = len(panel.lines) > 1
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=20 if many else 8)
    axes.set_xlabel(f"{panel.phase.upper()} step", fontsize=8, color=INK)
    axes.tick_params(labelsize=8, colors=INK, length=0)
    axes.grid(axis="y", color=INK, alpha=0.18, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=INK, alpha=0.4)
    axes.margins(x=0.01)
    if many:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 0.98),
            ncols=len(panel.lines),
            frameon=False,
            fontsize=7.5,
            labelcolor=INK,
            handlelength=0.9,
            columnspacing=1.0,
        )


def _thin(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).astype(int))


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
