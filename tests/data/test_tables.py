"""Files, globs, slices and datasets give the same rows from wherever they are read."""

import datasets
import pytest

from dare.data.config import TaskConfig
from dare.data.fingerprint import fingerprint
from dare.data.opened import open_source
from dare.data.row import RowError, checked
from dare.data.source import load_examples
from dare.data.span import split_slice
from dare.data.tables import FileTable
from dare.errors import DareError
from row_files import write

ROWS = [{"prompt": f"q{i}", "completion": f"a, {i}"} for i in range(11)]
KINDS = ["rows.parquet", "rows.jsonl", "rows.json", "rows.csv"]


def answers(root, train, **settings):
    examples = load_examples(TaskConfig(root=root, train=train, **settings), "train", answers=True)
    return [int(example.answer.removeprefix("a, ")) for example in examples]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_read_from_any_row(name, tmp_path):
    table = FileTable(write(tmp_path / name, ROWS))
    assert table.count() == len(ROWS)
    for start in range(len(ROWS) + 2):
        rows = [checked(row) for row in table.read(start)]
        assert [row.fields for row in rows] == ROWS[start:]
        assert [row.number for row in rows] == list(range(len(ROWS)))[start:]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[2:5]", [2, 3, 4]),
        ("[:3]", [0, 1, 2]),
        ("[9:]", [9, 10]),
        ("[-2:]", [9, 10]),
        ("[:-9]", [0, 1]),
        ("[:50%]", [0, 1, 2, 3, 4]),
        ("[50%:]", [5, 6, 7, 8, 9, 10]),
        ("[9:99]", [9, 10]),
        ("", list(range(11))),
    ],
)
def test_slices(name, text, expected, tmp_path):
    write(tmp_path / name, ROWS)
    assert answers(tmp_path, name + text) == expected
    assert answers(tmp_path, name + text, train_count=2) == expected[:2]


@pytest.mark.parametrize("text", ["[5:5]", "[5:2]", "[90%:10%]", "[-3:-5]"])
def test_an_empty_slice_is_refused(text, tmp_path):
    write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(DareError, match="takes no row"):
        answers(tmp_path, f"rows.jsonl{text}")


def test_what_is_no_slice_is_part_of_the_name():
    assert split_slice("part-[0-3].jsonl") == ("part-[0-3].jsonl", None)
    where, span = split_slice("hf:some/name:main:train[10%:]")
    assert where == "hf:some/name:main:train" and span.places(lambda: 50) == (5, None)


def test_shares_meet_and_do_not_overlap(tmp_path):
    write(tmp_path / "rows.jsonl", ROWS)
    for percent in range(10, 100, 10):
        halves = [answers(tmp_path, f"rows.jsonl{text}") for text in (f"[:{percent}%]", f"[{percent}%:]")]
        assert halves[0] + halves[1] == list(range(11))


def test_globs_and_lists_are_read_as_one_source(tmp_path):
    write(tmp_path / "b.jsonl", ROWS[4:])
    write(tmp_path / "a.jsonl", ROWS[:4])
    assert answers(tmp_path, "*.jsonl") == list(range(11))
    assert answers(tmp_path, "*.jsonl[3:6]") == [3, 4, 5]
    assert answers(tmp_path, ["b.jsonl[:2]", "a.jsonl"]) == [4, 5, 0, 1, 2, 3]
    table = open_source("*.jsonl", TaskConfig(root=tmp_path), "train")
    for start in range(12):
        assert [checked(row).fields for row in table.read(start)] == ROWS[start:]
    with pytest.raises(DareError, match="matches no file"):
        answers(tmp_path, "*.csv")


def test_embedded_tasks_are_sliced_too(tmp_path):
    whole = load_examples(TaskConfig(train="digit_sums", train_count=9), "train")
    assert load_examples(TaskConfig(train="digit_sums[2:4]", train_count=9), "train") == whole[2:4]


def test_all_rows_of_a_file_are_taken(tmp_path):
    write(tmp_path / "many.csv", [{"prompt": "q", "completion": f"a, {i}"} for i in range(20_500)])
    assert len(answers(tmp_path, "many.csv")) == 20_500


def test_reading_goes_on_behind_a_bad_line(tmp_path):
    path = write(tmp_path / "rows.jsonl", ROWS[:3])
    path.write_text('{"prompt": 1\n' + path.read_text() + "[2]\n")
    rows = list(FileTable(path).read())
    assert [isinstance(row, RowError) for row in rows] == [True, False, False, False, True]
    assert str(rows[4]).startswith(f"{path} row 4: not a JSON object but list; write")
    with pytest.raises(DareError, match=r"row 0: not JSON \(.*\); write one object per line"):
        answers(tmp_path, "rows.jsonl")


@pytest.mark.parametrize("line", ["only", "a,b,c"])
def test_csv_rows_with_other_fields_than_the_header_are_named(line, tmp_path):
    (tmp_path / "rows.csv").write_text(f"prompt,completion\nq,a\n{line}\n")
    with pytest.raises(DareError, match="row 1: more or fewer fields than the header"):
        answers(tmp_path, "rows.csv")


def test_json_must_be_a_list(tmp_path):
    (tmp_path / "rows.json").write_text('{"prompt": "q"}')
    with pytest.raises(DareError, match="it holds one dict, not a list of rows"):
        answers(tmp_path, "rows.json")


def test_saved_datasets(tmp_path):
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=data, validation=data.select(range(2))).save_to_disk(tmp_path / "several")
    assert answers(tmp_path, "./one") == answers(tmp_path, "several/") == list(range(11))
    assert answers(tmp_path, "./one[-2:]") == [9, 10]
    assert answers(tmp_path, "several/validation") == [0, 1]
    with pytest.raises(DareError, match=r"no split 'test'; name one of .*several/train, .*several/validation"):
        load_examples(TaskConfig(root=tmp_path, train="./one", test="./several"), "test", answers=True)


def test_a_hub_dataset_that_cannot_be_reached_says_what_to_do(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DareError, match=r"'hf:no/such' cannot be loaded .*save_to_disk and give that folder"):
        load_examples(TaskConfig(train="hf:no/such"), "train", answers=True)
    with pytest.raises(DareError, match="expected hf:NAME"):
        load_examples(TaskConfig(train="hf:a:b:c:d"), "train", answers=True)


def test_a_hub_dataset_is_loaded_or_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "train.jsonl", ROWS)
    name = f"hf:{tmp_path}/folder"
    assert answers(tmp_path, name) == list(range(11)) == answers(tmp_path, f"{name}::train")
    assert answers(tmp_path, f"{name}[-2:]") == [9, 10]
    streamed = open_source(f"{name}[2:7]", TaskConfig(), "train", stream=True)
    assert [checked(row).fields["prompt"] for row in streamed.read(3)] == ["q5", "q6"]
    with pytest.raises(DareError, match="no known length; slice it by plain row numbers"):
        open_source(f"{name}[-2:]", TaskConfig(), "train", stream=True)
    one, other = (fingerprint(TaskConfig(train=f"{name}{text}"), "train") for text in ("", "[1:]"))
    assert one != other and fingerprint(TaskConfig(train=name), "train") == one


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": []}, "it is empty"),
        ({"test": {"a.jsonl": 1}}, "each test row is met once; give a list"),
        ({"train": {"a.jsonl": -1.0}}, "weights must not be negative"),
        ({"train": {"a.jsonl": 0}}, "at least one above 0"),
        ({"stream": 4, "cache": "x"}, "cache has no effect with stream"),
        ({"rendered": True, "turns": "all_turns"}, "turns=all_turns has no effect with rendered"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TaskConfig(**settings)
