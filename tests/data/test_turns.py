import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from dare.data.config import TaskConfig
from dare.data.source import answer_sequences, load_items
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.models.tokenizer import tiny_token_ids, tiny_tokenizer

TOKENIZER, IDS = tiny_tokenizer(), tiny_token_ids()
SPEC = ModelSpec(
    family="tiny",
    mask_id=IDS["mask"],
    eos_ids=(IDS["eos"],),
    pad_id=IDS["pad"],
    vocab_size=IDS["vocab_size"],
    context=512,
)


def chat(*texts, first="user"):
    """Turns that alternate, the user's first."""
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]


@pytest.fixture
def items(tmp_path):
    """Load SFT items of conversations under a policy."""

    def load(conversations, turns="last", spec=SPEC, **settings):
        lines = [json.dumps({"prompt": conversation}) for conversation in conversations]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
        task = TaskConfig(train="rows.jsonl", root=tmp_path, turns=turns, **settings)
        return load_items(task, "train", TOKENIZER, spec, 64, answers=True).rows

    return load


def texts(rows):
    return [(TOKENIZER.decode(row.prompt_ids), TOKENIZER.decode(row.answer_ids)) for row in rows]


LONG = chat("a", "b", "c", "d")
FIRST = ("<|user|>a<|assistant|>", "b")
LAST = ("<|user|>a<|assistant|>b<|eos|><|user|>c<|assistant|>", "d")


def test_the_last_answer_is_the_default(items):
    assert texts(items([LONG, chat("x", "y")])) == [LAST, ("<|user|>x<|assistant|>", "y")]


def test_every_answer_is_an_example_with_its_own_noise(items):
    rows = items([LONG, chat("x", "y")], "all_turns")
    assert texts(rows) == [FIRST, LAST, ("<|user|>x<|assistant|>", "y")]
    assert [row.index for row in rows] == [0, 1, 2]
    assert [row.example.columns["row"] for row in rows] == [0, 0, 1]


def test_one_answer_is_drawn_by_seed_and_row(items):
    picks = [texts(items([LONG] * 64, "random_prefix", seed=seed)) for seed in (0, 0, 1)]
    assert picks[0] == picks[1] != picks[2]
    assert set(picks[0]) == {FIRST, LAST}
    assert 16 < picks[0].count(FIRST) < 48
    assert texts(items([LONG] * 8, "random_prefix", seed=0)) == picks[0][:8]


@pytest.mark.parametrize("turns", ["last", "random_prefix", "all_turns"])
def test_a_greeting_is_read_but_not_learned(items, turns):
    greeted = chat("hello", "a", "b", first="assistant")
    assert texts(items([greeted], turns)) == [("<|assistant|>hello<|eos|><|user|>a<|assistant|>", "b")]


@pytest.mark.parametrize("turns", ["last", "random_prefix", "all_turns"])
@pytest.mark.parametrize("wrong", [chat("a"), chat("a", "b", "c"), chat("a", first="assistant")])
def test_a_conversation_without_an_answer_is_named(items, turns, wrong):
    roles = ", ".join(turn["role"] for turn in wrong)
    with pytest.raises(DareError, match=rf"rows\.jsonl row 1: prompt is turns of {roles}; .* task\.answer_column"):
        items([LONG, wrong], turns)


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValidationError, match="all_turns"):
        TaskConfig(turns="first")


def test_an_answer_column_is_learned_after_the_whole_prompt(tmp_path):
    row = {"prompt": chat("a", "b", "c"), "extra_info": {"answer": "d"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    task = TaskConfig(train="rows.jsonl", root=tmp_path, answer_column="extra_info.answer")
    assert texts(load_items(task, "train", TOKENIZER, SPEC, 64, answers=True).rows) == [LAST]


@pytest.mark.parametrize(
    ("eos_ids", "ends"),
    [((IDS["eos"],), [IDS["eos"]]), ((IDS["pad"], IDS["eos"]), [IDS["eos"], IDS["pad"]])],
    ids=["EOS closes a turn", "another token closes a turn"],
)
def test_answers_end_in_their_end_of_turn_token_and_one_eos(items, eos_ids, ends):
    spec = replace(SPEC, eos_ids=eos_ids)
    (row,) = items([chat("x", "y")], spec=spec)
    ids = answer_sequences([row], spec, "none", 64, 4).ids_BT[0].tolist()
    assert ids == [*row.prompt_ids, *TOKENIZER("y")["input_ids"], *ends]
