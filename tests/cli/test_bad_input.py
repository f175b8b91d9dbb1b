import json
from pathlib import Path

import pytest

from dare.cli import main

SMALL = [
    "task.train=sudoku_small",
    "task.train_count=20",
    "decoding.max_new_tokens=17",
    "train.batch=4",
    "train.steps=1",
]
ROW = {
    "data_source": "countdown",
    "prompt": [{"role": "user", "content": "Use 2 and 3 to make 6."}],
    "reward_model": {"style": "rule", "ground_truth": "6"},
    "extra_info": {"numbers": "[2, 3]"},
}


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command line, expect status 2 and one line on stderr; return that line."""
    monkeypatch.setattr("sys.argv", ["dare", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), lines
    return lines[0]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def write_rows(path: Path, rows: list[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trian.steps=3", "unknown setting 'trian'; did you mean 'train'?"),
        ("train.step=3", "unknown setting 'train.step'; did you mean 'steps'?"),
        ("train.steps=-3", "setting train.steps=-3"),
        ("train.steps=many", "setting train.steps='many'"),
        ("algorithm.name=d2", "algorithm.name='d2' is unknown; did you mean 'd1'?"),
        (
            "algorithm.clip_lo=0.1",
            "unknown setting 'algorithm.clip_lo'; did you mean 'clip_low'?",
        ),
        ("decoding.temperature=0", "decoding.temperature=0"),
        ("decoding.entropy_bound=0.9", "rule=entropy"),
        ("model.path=tiny:maskd", "did you mean 'tiny:masked'?"),
        ("model.path=/no/such/model", "no config.json there"),
        ("model.lora.rnk=3", "unknown setting 'model.lora.rnk'; did you mean 'rank'?"),
        ("model.lora.dropout=0.1", "model.lora.dropout=0.1: must be 0"),
        ("model.lora.four_bit=true", "needs a GPU; engine.device is 'cpu'"),
        ("engine.device=cud", "engine.device='cud' cannot be used here"),
        ("task.train=sudoku_smal", "did you mean 'sudoku_small'?"),
        ("task.train=rows.parquet", "rows.parquet"),
        ("task.rewards={sudok: 1.0}", "sudok"),
        ("no-such-file.yaml", "no-such-file.yaml"),
        ("resume=true", "no checkpoint to resume"),
    ],
)
def test_a_mistake_is_one_clear_line_and_writes_nothing(
    override: str, expected: str, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [f"output={out}", *SMALL, "algorithm.name=d1", "decoding.temperature=1.0"]
    line = refused(["rl", *base, override], monkeypatch, capsys)
    assert expected in line
    assert not (out / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "has no rows"),
        ([ROW, {k: v for k, v in ROW.items() if k != "prompt"}], "row 1: no column 'prompt'"),
        ([ROW, {**ROW, "prompt": []}], "row 1: prompt is null or empty"),
        ([{**ROW, "data_source": "unheard_of"}], "data_source 'unheard_of' has no usual reward"),
    ],
)
def test_a_bad_row_is_named_with_file_row_and_column(
    rows: list[object],
    expected: str,
    tmp_path: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = write_rows(tmp_path / "rows.jsonl", rows)
    data = [
        f"task.root={tmp_path}",
        f"task.train={name}",
        "decoding.max_new_tokens=4",
        "train.steps=1",
        "train.batch=1",
    ]
    rl = ["algorithm.name=d1", "algorithm.group_size=2", "decoding.temperature=1.0"]
    assert expected in refused(["rl", f"output={out}", *data, *rl], monkeypatch, capsys)
    assert not (out / "checkpoints").exists()


def test_a_prompt_beyond_the_limit_is_dropped_and_counted_or_refused(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = {**ROW, "prompt": [{"role": "user", "content": "x" * 300}]}
    name = write_rows(tmp_path / "rows.jsonl", [ROW, long])
    data = [f"task.root={tmp_path}", f"task.train={name}", "task.max_prompt_tokens=100", "decoding.max_new_tokens=4"]
    rl = ["algorithm.name=d1", "algorithm.group_size=2", "decoding.temperature=1.0", "train.steps=1", "train.batch=1"]
    line = refused(["rl", f"output={out}", *data, *rl, "task.overlong=error"], monkeypatch, capsys)
    assert "row 1" in line and "limit 100" in line
    monkeypatch.setattr("sys.argv", ["dare", "plan", "rl", f"output={out}", *data, *rl])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "1 kept, 1 left out" in capsys.readouterr().out


def test_an_existing_run_is_never_overwritten(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out.mkdir()
    (out / "precious").write_text("data")
    assert "is not empty" in refused(["sft", f"output={out}", *SMALL], monkeypatch, capsys)
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_a_group_with_equal_rewards_and_empty_answers_train_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path / "rows.jsonl", [ROW])
    out = tmp_path / "run"
    layers = [
        f"output={out}",
        f"task={{root: {tmp_path}, train: rows.jsonl}}",
        "decoding={max_new_tokens: 2, steps: 1, temperature: 1.0}",
        "algorithm={name: d1, group_size: 3, updates: 1}",
        "train={steps: 1, batch: 1}",
    ]
    monkeypatch.setattr("sys.argv", ["dare", "rl", *layers])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    metrics = json.loads((out / "metrics.jsonl").read_text())
    assert metrics["groups/zero_variance"] == 1.0 and metrics["groups/none_solved"] == 1.0
    assert metrics["advantage/std"] == 0.0 and metrics["reward/unparsed"] == 1.0
