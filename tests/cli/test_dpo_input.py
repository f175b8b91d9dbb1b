"""What ``dare dpo`` and ``dare plan dpo`` say to mistakes, and to a good run."""

import json
from pathlib import Path

import pytest
from test_bad_input import refused

from dare.cli import main

ROOT = Path(__file__).parents[2]
SMALL = ["task.train=digit_sums_pairs", "task.train_count=20", "decoding.max_new_tokens=16", "train.batch=4"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("dpo.bta=0.3", "unknown setting 'dpo.bta'; did you mean 'beta'?"),
        ("dpo.beta=0", "setting dpo.beta=0"),
        ("dpo.draws=0", "setting dpo.draws=0"),
        ("dpo.loss=hinge", "setting dpo.loss='hinge'"),
        ("dpo={loss: ipo, target_margin: 1}", "remove target_margin"),
        ("dpo={reference_free: true, antithetic: false}", "reference_free has none"),
        ("task.train=digit_sums", "did you mean 'digit_sums_pairs'?"),
        ("task.train=pairs.parquet", "pairs.parquet"),
        ("decoding.max_new_tokens=3", "none of 20 rows fits"),
        ("resume=true", "no checkpoint to resume"),
    ],
)
def test_a_mistake_is_one_clear_line_and_writes_nothing(
    override: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert expected in refused(["dpo", f"output={out}", *SMALL, override], monkeypatch, capsys)
    assert not out.exists()


def test_a_bad_row_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "2+2?", "chosen": "4", "rejected": "4"}))
    layers = [f"output={tmp_path / 'run'}", *SMALL, f"task.root={tmp_path}", "task.train=rows.jsonl"]
    line = refused(["dpo", *layers], monkeypatch, capsys)
    assert f"{tmp_path / 'rows.jsonl'} row 0: rejected is the same as chosen" in line


def test_the_plan_counts_both_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = [str(ROOT / "configs" / name) for name in ("dpo/vrpo.yaml", "task/digit_sums_pairs.yaml")]
    layers = [*shipped, f"output={tmp_path / 'run'}", "task.train_count=20", "train.batch=4"]
    monkeypatch.setattr("sys.argv", ["dare", "plan", "dpo", *layers])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    printed = capsys.readouterr().out
    assert "20 kept, 0 left out" in printed and "steps of 8 sequences" in printed and "draws=8" in printed
