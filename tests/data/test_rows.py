import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dare.data.config import TaskConfig
from dare.data.source import load_examples
from dare.errors import DareError
from dare.rewards.registry import DEFAULT_REWARD
from dare.types import Example
from graders import reward
from row_files import write

SHARED = Path(os.environ.get("DARE_SHARED", "../shared")) / "data"


def row(**changes: Any) -> dict[str, Any]:
    return {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": "1+1?"}],
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 4, "question": "one plus one?", "answer": "#### 2"},
    } | changes


def read_examples(path: Path, **settings: Any) -> list[Example]:
    task = TaskConfig(train=f"{path.absolute()}/" if path.is_dir() else str(path.absolute()), **settings)
    return load_examples(task, "train", answers="answer_column" in settings)


@pytest.fixture(params=["rows.parquet", "rows.jsonl", "rows.json"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


def test_rl_rows(path: Path) -> None:
    examples = read_examples(write(path, [row(), row(data_source="math")]))
    assert examples[1] == Example(
        ({"role": "user", "content": "1+1?"},),
        {
            "data_source": "math",
            "ground_truth": "2",
            "index": 4,
            "question": "one plus one?",
            "answer": "#### 2",
            "row": 1,
        },
    )


def test_sft_rows(path: Path) -> None:
    bare = [{"extra_info": row()["extra_info"]}]
    examples = read_examples(
        write(path, bare), question_column="extra_info.question", answer_column="extra_info.answer"
    )
    assert examples[0].prompt == ({"role": "user", "content": "one plus one?"},)
    assert examples[0].answer == "#### 2"


def test_limit_and_drop_ungraded(path: Path) -> None:
    empty = row(reward_model={"style": "rule", "ground_truth": None})
    write(path, [row(), empty, row()])
    assert len(read_examples(path, train_count=1)) == 1
    assert [e.columns["row"] for e in read_examples(path)] == [0, 2]


@pytest.mark.parametrize(
    ("broken", "columns", "message"),
    [
        (row(prompt=None), {}, "row 1: prompt is null or empty"),
        (row(prompt=[]), {}, "row 1: prompt is null or empty"),
        (row(prompt=[{"role": "user", "content": " "}]), {}, "row 1: prompt is not a list of turns"),
        (row(data_source=""), {}, "row 1: data_source is null or empty"),
        (
            row(extra_info={"index": 1, "question": "q", "answer": ""}),
            {"answer_column": "extra_info.answer"},
            "row 1: extra_info.answer is null or empty",
        ),
        (
            row(extra_info={"index": 1, "question": None, "answer": "a"}),
            {"question_column": "extra_info.question", "answer_column": "extra_info.answer"},
            "row 1: extra_info.question is null or empty",
        ),
    ],
)
def test_an_empty_field_is_named(path: Path, broken: dict[str, Any], columns: dict[str, str], message: str) -> None:
    with pytest.raises(DareError) as refusal:
        read_examples(write(path, [row(), broken]), **columns)
    assert f"{path} {message}" in str(refusal.value)


def test_a_missing_column_is_named(path: Path) -> None:
    with pytest.raises(DareError) as refusal:
        read_examples(write(path, [row()]), answer_column="extra_info.anwser")
    message = str(refusal.value)
    assert message.startswith(f"{path} row 0: no column 'extra_info.anwser'; did you mean 'extra_info.answer'?")
    assert "data_source" in message and "extra_info.question" in message and "\n" not in message
    with pytest.raises(DareError, match=r"no column 'prompt\.content'"):
        read_examples(path, question_column="prompt.content")
    with pytest.raises(DareError, match=r"extra_info\.index is of type int"):
        read_examples(path, question_column="extra_info.index")


def test_unusable_files_are_named(path: Path) -> None:
    path.write_bytes(b"\xff not data\n")
    with pytest.raises(DareError, match="cannot be read"):
        read_examples(path)
    with pytest.raises(DareError, match=f"wors{path.suffix} does not exist; did you mean '{path.name}'"):
        read_examples(path.with_stem("wors"))
    with pytest.raises(DareError, match="nor does its folder"):
        read_examples(path.parent / "none" / path.name)
    with pytest.raises(DareError, match=r"give a \.parquet, \.jsonl, \.json or \.csv file"):
        read_examples(path.with_suffix(".txt"))
    with pytest.raises(DareError, match="is no dataset saved by save_to_disk"):
        read_examples(path.parent)
    with pytest.raises(DareError, match=rf"is a folder; write \./{path.parent.name} for a dataset"):
        load_examples(TaskConfig(root=path.parent.parent, train=path.parent.name), "train")


def test_an_empty_file_is_named(path: Path) -> None:
    write(path, [row()])
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    else:
        path.write_text("[]" if path.suffix == ".json" else "\n")
    with pytest.raises(DareError, match="has no rows"):
        read_examples(path)


def test_jsonl_structs_must_be_structs(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [row(extra_info="{}")])
    with pytest.raises(DareError, match="extra_info is of type str"):
        read_examples(file)
    file.write_text("[1]\n")
    with pytest.raises(DareError, match="not a JSON object"):
        read_examples(file)


def shared(name: str) -> Path:
    if not (SHARED / name).is_file():
        pytest.skip(f"no {name} in {SHARED}; set DARE_SHARED to the folder of the shared data")
    return SHARED / name


def graded(examples: list[Example], completion: str) -> list[float | None]:
    """Grade the completion template filled with each ground truth by the default reward of its source."""
    return [
        reward(DEFAULT_REWARD[e.columns["data_source"]])(
            completion.replace("TRUTH", e.columns["ground_truth"]), **e.columns
        )
        for e in examples
    ]


@pytest.mark.parametrize(
    ("name", "rows", "completion"),
    [
        ("train/gsm8k", 7473, r"\boxed{TRUTH}"),
        ("train/math", 7470, r"\boxed{TRUTH}"),
        ("test/math500", 500, r"\boxed{TRUTH}"),
        ("test/aime2024", 30, r"\boxed{TRUTH}"),
        ("test/aime2025", 30, r"\boxed{TRUTH}"),
        ("train/sudoku-n20000", 20000, "<answer>TRUTH</answer>"),
    ],
)
def test_published_rl_rows_grade_their_own_truth(name: str, rows: int, completion: str) -> None:
    examples = read_examples(shared(f"rl/{name}.parquet"))
    assert len(examples) == rows
    assert set(graded(examples, completion)) == {1.0}


def test_published_countdown_rows() -> None:
    examples = read_examples(shared("rl/train/countdown-n20000.parquet"))
    assert len(examples) == 20000
    assert set(graded(examples, "<answer>TRUTH</answer>")) == {0.1}


def test_published_sft_answers_are_right() -> None:
    path = shared("sft/gsm8k_train.parquet")
    examples = read_examples(path, question_column="extra_info.question", answer_column="extra_info.answer")
    assert len(examples) == 7473
    grade = reward(DEFAULT_REWARD["openai/gsm8k"])
    assert {grade(e.answer, **e.columns) for e in examples} == {1.0}
