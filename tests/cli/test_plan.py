"""The memory that ``dare plan`` announces, against what an update takes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dare.cli import main
from dare.models.checkpoint import load_checkpoint
from dare.plan_memory import activations, kept_bytes

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
def test_the_estimate_is_near_the_measured_peak_of_an_update() -> None:
    """Half of this case's memory is logits, so that either part being wrong shows."""
    command = [sys.executable, "benchmarks/update_memory.py", "random:2x64x3000 16 128"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    total, logits, ratio = map(float, re.findall(r"expected (\S+) GB \((\S+) GB logits\).* ratio (\S+)", printed)[0])
    assert 0.4 < logits / total < 0.6
    assert 0.85 < ratio < 1.15


@pytest.mark.parametrize("name", ["tiny:masked", "tiny:block"])
def test_a_long_pass_is_extrapolated_from_short_ones(name: str) -> None:
    model = load_checkpoint(name).model
    counted = kept_bytes(model, width=150, rows=6)
    # spans make a pair's memory grow in steps
    near = 0.02 if model.spec.block_size is None else 0.05
    assert activations(model, rows=6, width=150, scored=0).states == pytest.approx(counted, rel=near)
    assert activations(model, rows=6, width=150, scored=0).logits == 0


def test_the_plan_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["task.train=sudoku_small", "task.train_count=20", "decoding.max_new_tokens=17", "engine.micro_batch=5"]
    monkeypatch.setattr("sys.argv", ["dare", "plan", "sft", f"output={tmp_path / 'run'}", *data])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main()
    line = next(line for line in capsys.readouterr().out.splitlines() if "activations in memory" in line)
    assert "for 5 sequences of 35 tokens" in line and "85 masked ones' logits" in line
