"""``dare data check``: every bad row is named, good files are measured."""

import json
import re

import pytest

from dare.cli import main


@pytest.fixture
def check(monkeypatch, capsys):
    """Run the verb at 80 columns; return its exit status and what it printed."""

    def run(*words):
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr("sys.argv", ["dare", "data", "check", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80 or "/" in out
        return stop.value.code or 0, re.sub(r"\s+", " ", out)

    return run


def lines(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}


def test_every_bad_row_is_named(check, tmp_path):
    bad = [{"messages": []}, "not json", {"mesages": []}, {"messages": [{"role": "user", "content": "hi"}]}]
    code, out = check(lines(tmp_path / "rows.jsonl", [GOOD, *bad, GOOD]))
    assert code == 1
    assert "rows.jsonl: 6 rows, 4 bad shape: messages" in out
    assert "1 messages is null or empty fill it in or remove the row" in out
    assert "2 not JSON" in out and "3 no column 'messages'" in out and "4 messages is turns of user" in out


def test_the_list_is_bounded(check, tmp_path):
    code, out = check(lines(tmp_path / "rows.jsonl", [GOOD, *[{"messages": []}] * 30]), "--show", "3")
    assert code == 1 and out.count("null or empty") == 3 and "and 27 more" in out


def test_lengths_in_characters_and_tokens(check, tmp_path):
    path = lines(tmp_path / "rows.jsonl", [GOOD])
    code, out = check(path)
    assert code == 0 and "1 rows, all good" in out
    assert "longest 2 rows ≤ longest 5 rows ≤" in out and "characters" in out
    assert "tokens longest 4" in check(path, "--model", "tiny:masked")[1]


def test_several_files_are_checked_to_the_end(check, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    empty, good = lines(tmp_path / "empty.jsonl", []), lines(tmp_path / "good.jsonl", [GOOD])
    code, out = check(tmp_path / "nope.jsonl", tmp_path / "broken.parquet", empty, good)
    assert code == 1
    assert "nope.jsonl: cannot be read" in out and "broken.parquet: cannot be read" in out
    assert "empty.jsonl: no rows" in out and "good.jsonl: 1 rows, all good" in out


def test_a_glob_names_the_file_of_each_bad_row(check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "a.jsonl", [GOOD, {"messages": []}])
    lines(tmp_path / "b.jsonl", [{"prompt": "q", "chosen": "a", "rejected": "a"}])
    code, out = check("*.jsonl")
    assert code == 1 and "3 rows, 2 bad shape: messages shape: preference pairs" in out
    assert "a.jsonl 1 messages" in out and "b.jsonl 0 rejected" in out


def test_columns_and_slices(check, tmp_path):
    path = lines(tmp_path / "rows.jsonl", [{"q": "a", "a": "b"}, {"q": "a"}])
    columns = ("--question-column", "q", "--answer-column", "a")
    assert check(path, *columns)[0] == 1
    assert check(f"{path}[:1]", *columns)[0] == 0


def test_what_a_template_cannot_render_is_a_bad_row(check, tmp_path):
    from dare.models.tokenizer import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + tokenizer.chat_template
    )
    tokenizer.save_pretrained(tmp_path / "model")
    row = {"messages": [{"role": "system", "content": "x"}, *GOOD["messages"]]}
    code, out = check(lines(tmp_path / "rows.jsonl", [GOOD, row]), "--model", tmp_path / "model")
    assert code == 1 and "2 rows, 1 bad" in out and "chat template: cannot render" in out


@pytest.mark.parametrize(
    ("name", "rows", "bad"),
    [("sft/gsm8k_train.parquet", 7473, 0), ("rl/train/math.parquet", 7474, 4), ("rl/test/mbpp.parquet", 500, 0)],
)
def test_published_files(check, shared, name, rows, bad):
    code, out = check(shared / "data" / name)
    assert code == (bad > 0)
    assert (f"{rows:,} rows, {bad} bad" if bad else f"{rows:,} rows, all good") in out
