"""Every shape ends in the same tokens; a row that lacks something is named."""

import pytest

from dare.data.config import TaskConfig
from dare.data.source import answer_sequences, load_examples, load_items
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.tokenizer import tiny_tokenizer
from row_files import write

TOKENIZER, SPEC = tiny_tokenizer(), load_checkpoint("tiny:masked").model.spec


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


SHAPES = {
    "messages": {"messages": [user("2+2?"), assistant("4")]},
    "conversation": {"prompt": [user("2+2?"), assistant("4")]},
    "texts": {"prompt": "2+2?", "completion": "4"},
    "turns": {"prompt": [user("2+2?")], "completion": [assistant("4")]},
    "response": {"prompt": "2+2?", "response": "4"},
    "response turns": {"prompt": [user("2+2?")], "response": [assistant("4")], "step_map": [0]},
}


def items(tmp_path, rows, name="rows.jsonl", room=8, answers=True, **settings):
    write(tmp_path / name, rows)
    task = TaskConfig(root=tmp_path, train=name, **settings)
    return load_items(task, "train", TOKENIZER, SPEC, room, answers=answers)


def text(item):
    return TOKENIZER.decode(item.prompt_ids), TOKENIZER.decode(item.answer_ids)


@pytest.mark.parametrize("row", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_every_shape_is_the_same_tokens(row, name, tmp_path):
    (item,) = items(tmp_path, [row], name).rows
    assert text(item) == ("<|user|>2+2?<|assistant|>", "4")


def test_csv_and_columns_are_the_same_tokens(tmp_path):
    (one,) = items(tmp_path, [SHAPES["texts"]], "rows.csv").rows
    named = {"question_column": "instruction", "answer_column": "output"}
    (other,) = items(tmp_path, [{"instruction": "2+2?", "output": "4"}], "other.csv", **named).rows
    assert text(one) == text(other) == ("<|user|>2+2?<|assistant|>", "4")


def test_rendered_texts_are_read_as_they_are(tmp_path):
    row = {"prompt": "<|user|>2+2?<|assistant|>", "response": "4<|eos|>"}
    (item,) = items(tmp_path, [row], rendered=True).rows
    assert text(item) == ("<|user|>2+2?<|assistant|>", "4")
    (item,) = items(
        tmp_path, [{"q": row["prompt"], "a": "4"}], "b.jsonl", rendered=True, question_column="q", answer_column="a"
    ).rows
    assert text(item) == ("<|user|>2+2?<|assistant|>", "4")
    with pytest.raises(DareError, match=r"task.rendered is for texts with an answer; .* of shape messages"):
        items(tmp_path, [SHAPES["messages"]], rendered=True)


def test_a_document_is_an_answer_to_nothing(tmp_path):
    (item,) = items(tmp_path, [{"text": "Once."}]).rows
    assert text(item) == ("", "Once.")
    assert item.ends


def test_graded_questions(tmp_path):
    (item,) = items(tmp_path, [{"question": "2+2?", "ground_truth_answer": "4"}], "rows.json", answers=False).rows
    assert text(item) == ("<|user|>2+2?<|assistant|>", "")
    assert item.example.columns["ground_truth"] == "4"


@pytest.mark.parametrize(
    ("row", "answers", "message"),
    [
        (
            {"chosen": "a", "rejected": "b", "prompt": "q"},
            True,
            r"train on them with dare dpo, or .*answer_column=chosen",
        ),
        ({"question": "q", "ground_truth_answer": "a"}, True, "no worked answer; set task.answer_column, or .*dare rl"),
        (SHAPES["messages"], False, "of shape messages, which no grader can judge"),
        ({"text": "Once."}, False, "of shape plain text, which no grader can judge"),
        ({"a": 1, "b": 2}, True, r"row 0: columns a, b are of no known shape; rename them .*messages.*question_column"),
    ],
)
def test_rows_of_the_wrong_kind_say_what_they_are_for(row, answers, message, tmp_path):
    with pytest.raises(DareError, match=message):
        items(tmp_path, [row], answers=answers)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"messages": [user("q")]}, "row 1: messages is turns of user; end it with a question and its answer"),
        ({"messages": [user("q"), assistant(" ")]}, r"messages is not a list of turns \(turn 1 has an empty content\)"),
        ({"messages": [user("q"), {"role": "assistant"}]}, "turn 1 has no text as content"),
        ({"messages": [user("q"), "a"]}, "turn 1 is of type str"),
        ({"messages": "q"}, r"\(it is of type str\)"),
        ({"message": []}, "row 1: no column 'messages'; did you mean 'message'"),
        ({"messages": None}, "row 1: messages is null or empty; fill it in or remove the row"),
    ],
)
def test_a_bad_conversation_is_named(bad, message, tmp_path):
    with pytest.raises(DareError, match=message) as refusal:
        items(tmp_path, [SHAPES["messages"], bad])
    assert str(tmp_path / "rows.jsonl") in str(refusal.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "q"}, "row 1: no column 'completion'"),
        ({"prompt": "q", "completion": ""}, "row 1: completion is null or empty"),
        ({"prompt": "", "completion": "a"}, "row 1: prompt is null or empty"),
        ({"prompt": "q", "completion": 4}, "row 1: completion is not a list of turns"),
        (
            {"prompt": "q", "completion": [user("a")]},
            "completion is turns of user after the prompt; one assistant turn",
        ),
    ],
)
def test_a_bad_completion_is_named(bad, message, tmp_path):
    with pytest.raises(DareError, match=message):
        items(tmp_path, [SHAPES["texts"], bad])


def test_a_question_without_an_answer_column_is_refused(tmp_path):
    with pytest.raises(DareError, match=r"names no answer; set task\.answer_column too"):
        items(tmp_path, [SHAPES["texts"]], question_column="prompt")


LONG = {"prompt": "q", "completion": "0123456789"}


def test_a_cut_answer_has_no_end(tmp_path):
    found = items(tmp_path, [SHAPES["texts"], LONG], overlong="truncate_answer")
    whole, cut = found.rows
    assert (found.dropped, found.cut) == (0, 1) and found.summary() == "2 kept, 0 left out, 1 answers cut"
    assert (whole.ends, cut.ends) == (True, False)
    assert text(cut)[1] == "01234567"
    for padding in ("none", "one_block", "to_length"):
        seqs = answer_sequences([whole, cut], SPEC, padding, 8, 4)
        eos = seqs.holds(SPEC.eos_ids).sum(1).tolist()
        assert eos[0] >= 1 and eos[1] == 0
        assert int(seqs.response_BT[1].sum()) == 8


def test_an_answer_that_just_fits_is_not_cut(tmp_path):
    found = items(tmp_path, [{"prompt": "q", "completion": "0123456"}], overlong="truncate_answer")
    assert found.cut == 0 and found.rows[0].ends


def test_a_long_prompt_is_never_cut(tmp_path):
    found = items(
        tmp_path, [SHAPES["texts"], {**LONG, "prompt": "q" * 50}], overlong="truncate_answer", max_prompt_tokens=20
    )
    assert (len(found.rows), found.dropped, found.cut) == (1, 1, 0)


def test_rows_without_a_ground_truth_are_counted(tmp_path):
    row = {"data_source": "math", "prompt": [user("q")], "reward_model": {"ground_truth": "4"}}
    found = items(tmp_path, [row, {**row, "reward_model": {"ground_truth": None}}], answers=False)
    assert (len(found.rows), found.dropped) == (1, 1)
    assert len(load_examples(TaskConfig(root=tmp_path, train="rows.jsonl"), "train")) == 1
