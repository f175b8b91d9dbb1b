import json
import re

import numpy as np
import pytest

from dare.errors import DareError
from dare.evaluation.plots import panels, plot_curves, series, smooth
from dare.evaluation.report import read_run, write_report
from dare.traces.files import write_traces
from dare.traces.trace import Trace

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
NAN = float("nan")


def evaluation(name, accuracy, half=0.04):
    interval = {"low": accuracy - half, "high": accuracy + half}
    return {
        "name": name,
        "task": "countdown_small",
        "count": 512,
        "accuracy": accuracy,
        **interval,
        "parse_failures": 3,
    }


def trace(name, completion="8*3", tokens=("8", "*", "3", "<|eos|>", "?"), steps=(2, 0, 1, 0, -1)):
    texts = {"prompt": "make 24", "expected": "24", "completion": completion}
    writes = sorted((step, i, tokens[i], -0.5) for i, step in enumerate(steps) if step >= 0)
    given = [None] * len(tokens)
    return Trace(name=name, **texts, score=1.0, passes=max(steps) + 1, given=given, writes=writes)


def metric_rows():
    sft = [{"phase": "sft", "step": s, "loss": 3.0 - s / 50, "loss/t_0.0_0.2": None, "lr": 1e-4} for s in range(50)]
    rl = [
        {"phase": "rl", "step": s, "reward/mean": s / 50, "reward/min": 0.0, "reward/max": 1.0, "kl": NAN if s else 0.5}
        for s in range(50)
    ]
    return sft + rl


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metric_rows()))
    (tmp_path / "eval.json").write_text(json.dumps([evaluation("after SFT", 0.4121), evaluation("after RL", 0.6379)]))
    write_traces(tmp_path / "rollouts.jsonl", [trace("after SFT"), trace("after RL")])
    (tmp_path / "config.yaml").write_text("task: countdown_small\n")
    return tmp_path


def test_report_shows_the_results(folder):
    path = write_report(folder, "My run")
    html = path.read_text("utf-8")
    assert path == folder / "report.html"
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    for text in (
        "My run",
        "41.2%",
        "63.8%",
        "+22.6 points",
        "do not overlap",
        "░*░⏎",
        "task: countdown_small",
        "SFT loss",
    ):
        assert text in html
    assert html.count("<svg") == len(panels(metric_rows()))
    assert not list(folder.glob(".*.tmp"))


def test_report_loads_nothing(folder):
    html = write_report(folder, "run").read_text("utf-8")
    assert "http://" not in html and "https://" not in html
    assert not re.search(r"<link|@import|\bsrc=|url\((?!#)", html)


def test_report_is_reproducible(folder):
    assert write_report(folder, "run").read_bytes() == write_report(folder, "run").read_bytes()


def test_hostile_text_is_escaped(folder):
    hostile = trace(HOSTILE, completion=HOSTILE, tokens=(HOSTILE, "b"), steps=(0, 1))
    write_traces(folder / "rollouts.jsonl", [hostile.model_copy(update={"prompt": HOSTILE})])
    (folder / "config.yaml").write_text(HOSTILE)
    (folder / "eval.json").write_text(json.dumps([evaluation(HOSTILE, 0.5)]))
    html = write_report(folder, HOSTILE).read_text("utf-8")
    assert "alert(1)" in html
    assert "<script>alert" not in html and "<img" not in html
    player = re.search(r'<script type="application/json">(.*?)</script>', html)
    assert json.loads(player[1])["writes"] == [[0, 0, HOSTILE, -0.5], [1, 1, "b", -0.5]]


@pytest.mark.parametrize("missing", ["metrics.jsonl", "eval.json", "rollouts.jsonl", "config.yaml"])
def test_every_file_is_optional(folder, missing):
    (folder / missing).unlink()
    assert "<h1>run</h1>" in write_report(folder, "run").read_text("utf-8")


def test_empty_folder_gives_an_empty_report(tmp_path):
    assert "holds no results yet" in write_report(tmp_path, "run").read_text("utf-8")
    assert not (tmp_path / "curves.png").exists()


def test_missing_folder_is_a_readable_error(tmp_path):
    with pytest.raises(DareError, match="does not exist"):
        read_run(tmp_path / "nowhere")


def test_half_a_last_line_is_left_out_but_a_broken_one_is_reported(folder):
    path = folder / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"phase": "rl", "st')
    assert len(read_run(folder).metrics) == len(metric_rows())
    path.write_text("{broken\n" + whole)
    with pytest.raises(DareError, match=r"metrics\.jsonl:1"):
        read_run(folder)


def test_missing_and_nan_values(folder):
    assert {"SFT loss by noise level t", "Entropy"}.isdisjoint(p.title for p in panels(metric_rows()))
    steps, values = series(metric_rows(), "rl", "kl")
    assert (steps.tolist(), values.tolist()) == ([0.0], [0.5])
    (folder / "eval.json").write_text(json.dumps([evaluation("a", 0.5) | {"mean_score": NAN, "seconds": None}]))
    html = write_report(folder, "run").read_text("utf-8")
    assert "nan" in html and "accuracy a" in html


def test_last_value_of_a_repeated_step_counts():
    rows = [{"phase": "sft", "step": s, "loss": v} for s, v in ((0, 1.0), (1, 9.0), (1, 2.0))]
    assert series(rows, "sft", "loss")[1].tolist() == [1.0, 2.0]


def test_smooth_keeps_lines_straight_and_short_curves_raw():
    line = np.arange(200.0)
    assert np.allclose(smooth(line)[5:-5], line[5:-5])
    assert np.array_equal(smooth(line[:10]), line[:10])


def test_single_point_is_drawn(tmp_path):
    plot_curves([{"phase": "rl", "step": 0, "entropy": 1.0}], tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 0


def test_page_stays_small_with_long_traces(folder):
    tokens, steps = [f"word{i} " for i in range(1024)], list(range(1024))
    long = [trace("a", "".join(tokens), tokens, steps).model_copy(update={"prompt": f"p{i // 2}"}) for i in range(40)]
    write_traces(folder / "rollouts.jsonl", long)
    path = write_report(folder, "run")
    assert path.stat().st_size < 2_000_000
    assert "The first 8 of 20 prompts" in path.read_text("utf-8")
