import json

import pytest
import torch

from dare.config import load_config
from dare.decoding.denoise import denoise
from dare.decoding.describe import describe
from dare.evaluation.config import EvalConfig
from dare.evaluation.evaluate import evaluate
from dare.evaluation.run import evaluate_and_show
from dare.models.checkpoint import load_checkpoint
from dare.progress import decoding_bar
from dare.traces.files import read_traces
from rows import keys

LAYERS = ["task.train=sudoku_small", "task.test_count=5", "decoding.max_new_tokens=8", "decoding.steps=4", "traces=3"]


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_an_evaluation_tells_its_plan_and_keeps_rollouts(model, tmp_path, capsys):
    config = load_config(EvalConfig, [*LAYERS, f"output={tmp_path / 'out'}"])
    result = evaluate_and_show(model, config)
    plan = describe(config.decoding, load_checkpoint(model).model.spec)
    out = capsys.readouterr()
    assert out.err == plan + "\n" and "sudoku_small" in out.out
    assert json.loads((tmp_path / "out" / "eval.json").read_text())[0]["plan"] == result.plan == plan
    rows = read_traces(tmp_path / "out")
    assert rows == evaluate(load_checkpoint(model), config)[1] and len(rows) == 3
    assert all(row.score is not None and row.prompt and row.passes == 4 for row in rows)


def test_no_token_budget_changes_an_evaluation():
    results = []
    for tokens in (1, 60, 2**16):
        config = load_config(EvalConfig, [*LAYERS, f"engine.decode_tokens={tokens}", "decoding.temperature=1"])
        result, rows = evaluate(load_checkpoint("tiny:masked"), config)
        results.append(({**result.as_dict(), "seconds": 0}, [row.completion for row in rows]))
    assert results[0] == results[1] == results[2]


def test_the_bar_shows_on_a_terminal_alone(monkeypatch, capsys):
    with decoding_bar("label", 3, 30) as watch:
        assert watch is None
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with decoding_bar("label", 5, 40) as watch:
        assert watch is not None
        config = load_config(EvalConfig, LAYERS)
        model = load_checkpoint("tiny:masked").model
        denoise(model, [[1, 2, 3]] * 5, config.decoding, keys(5), torch.arange(5), watch=watch)
    shown = capsys.readouterr().err
    assert "label" in shown and "5/5 rows  2.00 tokens/forward" in shown and "tokens/s" in shown
