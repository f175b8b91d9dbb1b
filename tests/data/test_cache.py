"""A cached split is the split itself, and its name changes with everything that it depends on."""

import pytest

from dare.data.config import TaskConfig
from dare.data.fingerprint import fingerprint
from dare.data.pairs import load_pairs
from dare.data.source import load_items
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.tokenizer import tiny_tokenizer
from row_files import write

TOKENIZER, SPEC = tiny_tokenizer(), load_checkpoint("tiny:masked").model.spec
ROWS = [
    {
        "messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a" * i}],
        "extra_info": {"i": i},
    }
    for i in range(1, 9)
]


@pytest.fixture
def task(tmp_path):
    write(tmp_path / "rows.jsonl", ROWS)
    return TaskConfig(root=tmp_path, train="rows.jsonl", cache=tmp_path / "cache")


def load(task, tokenizer=TOKENIZER, **changes):
    return load_items(task.model_copy(update=changes), "train", tokenizer, SPEC, 8, answers=True)


def files(task):
    return sorted(task.cache.iterdir()) if task.cache.exists() else []


def test_the_second_run_reads_what_the_first_wrote(task, monkeypatch):
    plain = load(task, cache=None)
    assert files(task) == []
    first = load(task)
    (path,) = files(task)
    written = path.stat().st_mtime_ns
    monkeypatch.setattr("dare.data.source.encode", None)
    second = load(task)
    assert plain.rows == first.rows == second.rows
    assert plain.dropped == first.dropped == second.dropped == 1
    assert files(task) == [path] and path.stat().st_mtime_ns == written


def test_limits_are_applied_behind_the_cache(task):
    load(task)
    assert load(task, overlong="truncate_answer").cut == 1
    assert load(task, max_prompt_tokens=3 + 1).dropped == 1
    assert len(files(task)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"turns": "all_turns"},
        {"seed": 3},
        {"train": "rows.jsonl[1:]"},
        {"train_count": 3},
        {"question_column": "extra_info.q", "answer_column": "extra_info.a"},
    ],
)
def test_settings_that_change_the_rows_change_the_name(task, changes, tmp_path):
    write(tmp_path / "rows.jsonl", [{**row, "extra_info": {"q": "q", "a": "a"}} for row in ROWS])
    load(task)
    load(task, **changes)
    assert len(files(task)) == 2


def test_data_tokenizer_and_template_change_the_name(task, tmp_path):
    load(task)
    other = tiny_tokenizer()
    other.chat_template = other.chat_template.replace("<|eos|>", "<|eos|>\n")
    load(task, other)
    assert len(files(task)) == 2
    other.add_tokens(["q1"])
    load(task, other)
    assert len(files(task)) == 3
    write(tmp_path / "rows.jsonl", ROWS[::-1])
    assert load(task).rows != load(task, TOKENIZER, cache=None).rows[::-1]
    assert len(files(task)) == 4


def test_graded_rows_and_pairs_are_cached_apart(task, tmp_path):
    graded = {
        "data_source": "math",
        "prompt": [{"role": "user", "content": "q"}],
        "reward_model": {"ground_truth": "4"},
    }
    write(tmp_path / "rows.jsonl", [graded, {**graded, "reward_model": {"ground_truth": None}}])
    first, second = (load_items(task, "train", TOKENIZER, SPEC, 8) for _ in range(2))
    assert first.rows == second.rows and first.dropped == second.dropped == 1
    write(tmp_path / "pairs.jsonl", [{"prompt": "q", "chosen": "a", "rejected": "b"}])
    pairs = task.model_copy(update={"train": "pairs.jsonl"})
    first, second = (load_pairs(pairs, "train", TOKENIZER, SPEC, 8) for _ in range(2))
    assert first.rows == second.rows and second.rows[0].rejected_ids
    assert len(files(task)) == 2


def test_a_damaged_file_is_named(task):
    load(task)
    (path,) = files(task)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DareError, match=rf"{path.name} cannot be read .*; remove the file"):
        load(task)


def test_a_folder_that_cannot_be_written_is_named(task, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DareError, match=r"task\.cache=.*file/cache cannot be written .*; name a writable folder"):
        load(task, cache=tmp_path / "file" / "cache")


def test_pairs_refuse_what_means_nothing_for_them(task, tmp_path):
    write(tmp_path / "pairs.jsonl", [{"prompt": "q", "chosen": "a", "rejected": "b"}])
    for changes in ({"stream": 3, "cache": None}, {"pack": 4}, {"rendered": True}, {"overlong": "truncate_answer"}):
        with pytest.raises(DareError, match="does not go with pairs"):
            load_pairs(task.model_copy(update={"train": "pairs.jsonl", **changes}), "train", TOKENIZER, SPEC, 8)


def test_fingerprints_are_of_content(task, tmp_path):
    one = fingerprint(task, "train")
    assert len(one) == 16 and int(one, 16) >= 0
    (tmp_path / "copy").mkdir()
    write(tmp_path / "copy" / "other.jsonl", ROWS)
    assert fingerprint(task.model_copy(update={"train": "copy/other.jsonl"}), "train") == one
    changed = [
        fingerprint(task.model_copy(update=changes), "train")
        for changes in (
            {"train": "rows.jsonl[1:]"},
            {"train_count": 2},
            {"turns": "all_turns"},
            {"train": {"rows.jsonl": 1, "copy/other.jsonl": 2}},
            {"train": {"rows.jsonl": 1, "copy/other.jsonl": 3}},
            {"train": "digit_sums", "train_count": 5},
            {"train": "digit_sums", "train_count": 5, "seed": 1},
            {"train": "digit_sums_pairs", "train_count": 5},
        )
    ]
    assert len({one, *changed}) == 9
    write(tmp_path / "rows.jsonl", ROWS[::-1])
    assert fingerprint(task, "train") != one
