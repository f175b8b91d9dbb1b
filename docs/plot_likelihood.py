"""Measure the likelihood estimators against exact values, for docs/likelihood.md. Run: python docs/plot_likelihood.py

Two embedded models learn digit_sums for a minute each. Their answers have 12 tokens, so all 4096 masks of an answer can
be scored; every draw of an estimator then reads its scores from that table.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dare.config import load_config
from dare.data.config import TaskConfig
from dare.data.source import answer_sequences, load_items
from dare.diffusion.estimators import ESTIMATORS, Budget, Estimator
from dare.diffusion.likelihood import score_view
from dare.diffusion.noise import key
from dare.models.base import DiffusionLM
from dare.train.config import SFTConfig
from dare.train.run import load_model
from dare.train.sft import train_sft
from dare.types import Sequences, Views

PAGE, FIGURE = Path(__file__).with_name("likelihood.md"), Path(__file__).with_name("likelihood.png")
START, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
MODELS = {"tiny:masked": "masked model", "tiny:block": "block-causal model, blocks of 8"}
COUNTS, ANSWERS, DRAWS = (2, 4, 8, 16, 32, 64), 2, 4000
SETTINGS = ["task.train=digit_sums", "optim.lr=1e-3", "train.batch=32", "train.steps=400"]
LAYERS = [*SETTINGS, "decoding.max_new_tokens=12", "eos_padding=none"]
COLOURS = {
    "random_rate": "#8a94a3",
    "random_count": "#3f7fd6",
    "coupled": "#c79a1e",
    "antithetic": "#2f9e77",
    "block": "#a864c9",
    "eubo": "#e0593a",
}
MARKERS = dict(zip(COLOURS, "os^Dvp", strict=True))
INK = "#3b4452"


class Answer:
    """One answer with every mask scored: ``table_NR`` log-probabilities, by the mask's number and the place."""

    def __init__(self, model: DiffusionLM, seqs: Sequences):
        self.seqs, self.places = seqs, seqs.response_BT[0].nonzero()[:, 0]
        size = len(self.places)
        self.power_R = 2 ** torch.arange(size)
        self.bits_NR = (torch.arange(2**size)[:, None] & self.power_R) > 0
        masked_NT = torch.zeros(2**size, seqs.ids_BT.shape[1], dtype=torch.bool)
        masked_NT[:, self.places] = self.bits_NR
        rows = [_score(model, seqs, masked_NT[start : start + 512]) for start in range(0, 2**size, 512)]
        self.table_NR = torch.cat(rows)[:, self.places]

    def orders(self) -> tuple[float, float]:
        """Mean log-probability over all orders (the bound) and log of the mean probability (the any-order sampler)."""
        bound, likelihood = [0.0], [0.0]
        for number in range(1, len(self.bits_NR)):
            place_M = self.bits_NR[number].nonzero()[:, 0]
            rest, logp_M = (number - self.power_R[place_M]).tolist(), self.table_NR[number, place_M]
            bound.append(float((logp_M + torch.tensor([bound[r] for r in rest])).mean()))
            ways_M = logp_M + torch.tensor([likelihood[r] for r in rest])
            likelihood.append(float(ways_M.logsumexp(0)) - float(torch.tensor(len(rest)).log()))
        return bound[-1], likelihood[-1]

    def draws(self, estimator: Estimator, count: int) -> Tensor:
        """Independent draws of an estimator."""
        many = self.seqs.select(torch.zeros(count, dtype=torch.int64))
        views = estimator.views(many, key("plot", estimator.name, torch.arange(count)))
        return estimator.combine(self._look_up(views), views).double()

    def _look_up(self, views: Views) -> Tensor:
        number_BK = views.masked_BKT[..., self.places].long() @ self.power_R
        logp_BKT = torch.zeros(views.masked_BKT.shape)
        logp_BKT[..., self.places] = self.table_NR[number_BK]
        return logp_BKT * views.scored_BKT


@dataclass
class Measured:
    """``bias`` and ``spread`` (standard deviation of a draw) by estimator and forwards; ``levels`` exact values, all
    relative to the exact bound.
    """

    bound: float
    bias: dict[str, dict[int, float]]
    spread: dict[str, dict[int, float]]
    levels: dict[str, float]


def trained(name: str, folder: Path) -> DiffusionLM:
    """Return the embedded model after its short lesson; a finished run in ``folder`` is used as it is."""
    if not folder.exists():
        train_sft(load_config(SFTConfig, [*LAYERS, f"model.path={name}", f"output={folder}"]))
    return load_model(str(folder)).model


def answers(name: str, model: DiffusionLM) -> list[Answer]:
    """Return held-out answers with all their masks scored."""
    tokenizer = load_model(name).tokenizer
    assert tokenizer is not None
    task = TaskConfig(train="digit_sums", test_count=ANSWERS)
    rows = load_items(task, "test", tokenizer, model.spec, 12, answers=True).rows
    return [Answer(model, answer_sequences([row], model.spec, "none", 12, 1)) for row in rows]


def measure(model: DiffusionLM, rows: list[Answer]) -> Measured:
    """Measure every estimator over all costs."""
    bound_N, any_order_N = torch.tensor([row.orders() for row in rows], dtype=torch.float64).T
    found = Measured(float(bound_N.mean()), {}, {}, {"any-order sampler": float((any_order_N - bound_N).mean())})
    for name, label in (("left_to_right", "left-to-right"), ("mean_field", "mean_field")):
        estimator = ESTIMATORS[name](Budget(block_size=model.spec.block_size))
        found.levels[label] = float((torch.cat([row.draws(estimator, 1) for row in rows]) - bound_N).mean())
    for name in COLOURS:
        if name != "block" or model.spec.block_size:
            _sweep(found, name, model.spec.block_size, rows, bound_N)
    return found


def figure(measured: dict[str, Measured]) -> Figure:
    """Draw bias above and standard deviation below, a column per model."""
    drawing = Figure((11, 7.6), dpi=140, layout="constrained", facecolor="white")
    axes = drawing.subplots(2, len(measured), sharex=True, sharey="row")
    for column, (name, found) in enumerate(measured.items()):
        _draw_bias(axes[0, column], found)
        _draw_spread(axes[1, column], found)
        axes[0, column].set_title(f"{MODELS[name]} ({name})", loc="left", fontsize=11, fontweight="bold", color=INK)
        axes[1, column].set_xlabel("cost: forward passes per draw", color=INK)
    axes[0, 0].set_ylabel("bias against the exact ELBO (nats)", color=INK)
    axes[1, 0].set_ylabel("standard deviation of a draw (nats)", color=INK)
    handles, labels = axes[1, -1].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, labelcolor=INK)
    return drawing


def table(measured: dict[str, Measured]) -> str:
    """Return the numbers in Markdown."""
    lines = []
    for name, found in measured.items():
        exact = ", ".join(f"{label} {value:+.2f}" for label, value in found.levels.items())
        lines += [f"\n`{name}`: exact ELBO {found.bound:.2f} nats; relative to it: {exact}.\n"]
        lines += ["| estimator | " + " | ".join(f"{cost} forwards" for cost in COUNTS) + " |"]
        lines += ["|---" * (len(COUNTS) + 1) + "|"]
        for row in found.bias:
            cells = [f"{found.bias[row][cost]:+.2f} ± {found.spread[row][cost]:.2f}" for cost in COUNTS]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _score(model: DiffusionLM, seqs: Sequences, masked_NT: Tensor) -> Tensor:
    many = seqs.select(torch.zeros(len(masked_NT), dtype=torch.int64))
    weight_NT = masked_NT.double()
    with torch.no_grad():
        return score_view(model, many, Views(masked_NT[:, None], weight_NT[:, None], weight_NT[:, None]), 0)[0]


def _sweep(found: Measured, name: str, block_size: int | None, rows: list[Answer], bound_N: Tensor) -> None:
    found.bias[name], found.spread[name] = {}, {}
    for count in COUNTS:
        estimator = ESTIMATORS[name](Budget(count=count, block_size=block_size))
        assert estimator.forwards is not None
        repeats = count // estimator.forwards
        draws_NR = torch.stack([row.draws(estimator, DRAWS * repeats) for row in rows])
        draws_NR = draws_NR.unflatten(1, (DRAWS, repeats)).mean(-1)
        found.bias[name][count] = float((draws_NR.mean(1) - bound_N).mean())
        found.spread[name][count] = float(draws_NR.var(1).mean().sqrt())


def _draw_bias(axes: Axes, found: Measured) -> None:
    labels = {"exact ELBO": 0.0, **found.levels}
    for style, (label, level) in zip(("-", "--", ":", "-."), labels.items(), strict=True):
        axes.axhline(level, color=INK, linewidth=1.2, linestyle=style, alpha=0.75)
        # the first two lie close together
        side = {"exact ELBO": "top", "any-order sampler": "bottom"}.get(label, "center")
        text = f"{label} {level:+.2f}" if level else label
        axes.annotate(text, (84, level), color=INK, fontsize=8.5, va=side, annotation_clip=False)
    for place, (name, values) in enumerate(found.bias.items()):
        shift = 1.0 if name == "eubo" else 1.05 ** (place - 2)
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 5.5}
        axes.plot(
            [cost * shift for cost in values], [*values.values()], linewidth=1.8 if name == "eubo" else 0, **style
        )
    _style(axes)


def _draw_spread(axes: Axes, found: Measured) -> None:
    for name, values in found.spread.items():
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 5.5, "linewidth": 1.8}
        axes.plot([*values], [*values.values()], label=name, **style)
    axes.set_yscale("log")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.yaxis.minorticks_off()
    _style(axes)


def _style(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
    axes.set_xlim(1.6, 80)
    axes.grid(color=INK, alpha=0.13, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=0, labelsize=9)


def main(folder: Path) -> None:
    """Train, measure, and rewrite the figure and the numbers of the page."""
    measured = {}
    for name in MODELS:
        model = trained(name, folder / name.replace(":", "_"))
        measured[name] = measure(model, answers(name, model))
    figure(measured).savefig(FIGURE)
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(before + START + table(measured) + END + rest.partition(END)[2])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
