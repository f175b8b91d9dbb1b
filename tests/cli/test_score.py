"""``dare score`` as a user types it."""

import re

import pytest
from typer.testing import CliRunner

from dare.cli import app
from dare.errors import DareError

ONE = ["--prompt", "1+1=", "--answer", "2"]


def dare(*words):
    done = CliRunner().invoke(app, ["score", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def rows(out):
    """Estimator to its numbers: nats, error, nats per token, forwards, seconds."""
    lines = [re.split(r"\s+", line.strip()) for line in out.splitlines()]
    return {line[0]: [float(x) for x in line[2:]] for line in lines if len(line) == 7 and line[0] != "estimator"}


@pytest.mark.parametrize(("model", "count"), [("tiny:masked", 7), ("tiny:block", 8)])
def test_one_answer_by_every_estimator(model, count):
    table = rows(dare(model, *ONE, "draws=8"))
    assert len(table) == count
    nats, error, per_token, forwards, _ = table["left_to_right"]
    assert error == 0 and forwards == 2  # the digit and its EOS
    assert nats == pytest.approx(2 * per_token, abs=1e-3)
    for name in ("random_count", "antithetic"):
        assert table[name][1] > 0 and table[name][3] == 64
        assert abs(table[name][0] - nats) < 2


def test_a_task_is_averaged_over_its_rows_whatever_the_micro_batch():
    words = ["tiny:block", "--estimator", "block", "--estimator", "left_to_right", "task.train=digit_sums"]
    words += ["task.test_count=5", "draws=2", "seed=3"]
    whole, cut = dare(*words), dare(*words, "engine.micro_batch=2")
    assert "digit_sums test: mean of 5 answers, 12 tokens" in whole
    assert set(rows(whole)) == {"block", "left_to_right"}
    for name, (nats, error, *_) in rows(whole).items():
        assert rows(cut)[name][:2] == pytest.approx([nats, error], abs=2e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "a"], "--answer is missing"),
        ([*ONE, "--estimator", "random_cout"], "did you mean 'random_count'"),
        ([*ONE, "--estimator", "trajectory"], "recorded rollout"),
        ([*ONE, "--estimator", "block"], "block-causal"),
        ([*ONE, "block_size=4"], "no blocks"),
        ([*ONE, "count=3"], "even number"),
        ([*ONE, "draws=1"], "draws=1"),
        (["--prompt", "a", "--answer", "b" * 5000], "context"),
        (["--prompt", "a", "--answer", "<|mask|>"], "mask token"),
    ],
)
def test_requests_that_cannot_be_met_say_why(words, message):
    with pytest.raises(DareError, match=message):
        dare("tiny:masked", *words)
