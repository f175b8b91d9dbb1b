"""Preference rows in every published shape end in the same pair; bad ones are named."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dare.data.config import TaskConfig
from dare.data.digit_pairs import digit_sums_pairs
from dare.data.pairs import load_pairs, read_split
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.tokenizer import tiny_tokenizer
from dare.rewards.registry import DEFAULT_REWARD
from graders import reward

TOKENIZER, SPEC = tiny_tokenizer(), load_checkpoint("tiny:masked").model.spec


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


ASKED = [user("2+2?")]
SHAPES = {
    "texts": {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
    "turns": {"prompt": ASKED, "chosen": [assistant("4")], "rejected": [assistant("5")]},
    "no prompt": {"chosen": [*ASKED, assistant("4")], "rejected": [*ASKED, assistant("5")]},
    "prompt repeated": {"prompt": "2+2?", "chosen": [*ASKED, assistant("4")], "rejected": [*ASKED, assistant("5")]},
    "release": {
        "data_source": "ultrafeedback",
        "prompt": ASKED,
        "chosen": [assistant("4")],
        "rejected": [assistant("5")],
        "extra_info": {"split": "train", "index": 3},
    },
}
LONG = [{"role": "system", "content": "Be brief."}, user("Hi"), assistant("Hello."), user("2+2?")]
SHAPES_OF_LONG = [
    {"prompt": LONG, "chosen": [assistant("4")], "rejected": [assistant("5")]},
    {"chosen": [*LONG, assistant("4")], "rejected": [*LONG, assistant("5")]},
]


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TaskConfig(root=path.parent, train=path.name, max_prompt_tokens=100)


@pytest.fixture(params=["rows.parquet", "rows.jsonl"])
def path(request, tmp_path):
    return tmp_path / request.param


def pair(row, path):
    ((chosen, rejected),) = read_split(write(path, [row]), "train")
    assert chosen.prompt == rejected.prompt and chosen.columns["row"] == 0
    return chosen.prompt, chosen.answer, rejected.answer


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_the_same_pair(shape, path):
    assert pair(shape, path) == (tuple(ASKED), "4", "5")


@pytest.mark.parametrize("shape", SHAPES_OF_LONG)
def test_conversations(shape, path):
    assert pair(shape, path) == (tuple(LONG), "4", "5")


@pytest.mark.parametrize("shape", [*SHAPES.values(), *SHAPES_OF_LONG])
def test_each_answer_has_one_assistant_header_and_one_end(shape, path):
    (item,) = load_pairs(write(path, [shape]), "train", TOKENIZER, SPEC, 8).rows
    before = sum(turn["role"] == "assistant" for turn in item.example.prompt)
    for ids, text in ((item.answer_ids, "4"), (item.rejected_ids, "5")):
        turns = [*item.example.prompt, assistant(text)]
        whole = TOKENIZER.decode([*item.prompt_ids, *ids])
        assert whole.count("<|assistant|>") == before + 1
        assert TOKENIZER.apply_chat_template(turns, tokenize=False).startswith(whole)
        assert TOKENIZER.decode(ids, skip_special_tokens=True) == text


GOOD = SHAPES["texts"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "2+2?", "chosen": "4"}, "row 1: no column 'rejected'"),
        ({**GOOD, "chosen": ""}, "row 1: chosen is null or empty; fill it in"),
        ({**GOOD, "rejected": "4"}, "row 1: rejected is the same as chosen.*remove the row"),
        ({**GOOD, "chosen": 4}, "row 1: chosen is not a list of turns"),
        ({**GOOD, "chosen": [user("4")]}, "row 1: chosen is turns of user after the prompt; one assistant turn"),
        (
            {**GOOD, "rejected": [assistant("5"), user("No."), assistant("4")]},
            "row 1: rejected is turns of assistant, us",
        ),
        ({"chosen": "4", "rejected": "5"}, "row 1: prompt is absent.*add a prompt column"),
        ({"chosen": [user("a"), assistant("4")], "rejected": [user("b"), assistant("5")]}, "row 1: prompt is absent"),
        ({**GOOD, "prompt": [{"role": "user"}]}, "row 1: prompt is not a list of turns"),
    ],
)
def test_a_bad_row_is_named_with_file_row_field_and_fix(bad, message, tmp_path):
    task = write(tmp_path / "rows.jsonl", [GOOD, bad])
    with pytest.raises(DareError, match=message) as refusal:
        read_split(task, "train")
    assert str(tmp_path / "rows.jsonl") in str(refusal.value)


def test_a_bad_source_is_named(tmp_path):
    with pytest.raises(DareError, match=r"no embedded set of pairs \(did you mean 'digit_sums_pairs'"):
        read_split(TaskConfig(train="digit_sums"), "train")
    with pytest.raises(DareError, match="has no rows"):
        read_split(write(tmp_path / "rows.jsonl", []), "train")


@pytest.mark.parametrize("field", ["prompt", "chosen", "rejected"])
def test_a_long_row_is_dropped_and_counted_or_refused(field, tmp_path):
    task = write(tmp_path / "rows.jsonl", [GOOD, {**GOOD, field: "7" * 200}])
    items = load_pairs(task, "train", TOKENIZER, SPEC, 8)
    assert (len(items.rows), items.dropped) == (1, 1)
    with pytest.raises(DareError, match=r"task.train row 1.*task.overlong=drop"):
        load_pairs(task.model_copy(update={"overlong": "error"}), "train", TOKENIZER, SPEC, 8)


@pytest.mark.parametrize("split", ["train", "test"])
def test_embedded_pairs_are_right_and_wrong_answers(split):
    grade = reward(DEFAULT_REWARD["digit_sums"])
    pairs = digit_sums_pairs(200, 1, split)
    assert pairs[:50] == digit_sums_pairs(50, 1, split) != digit_sums_pairs(50, 2, split)
    for chosen, rejected in pairs:
        assert grade(chosen.answer, **chosen.columns) == 1 > grade(rejected.answer, **rejected.columns)
        assert sum(a != b for a, b in zip(chosen.answer, rejected.answer, strict=True)) == 1
