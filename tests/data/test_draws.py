"""Order, mixing, streaming and resuming: the next draw is a function of the state."""

import json
from collections import Counter
from itertools import islice

import pytest

from dare.data.config import TaskConfig
from dare.data.items import Item
from dare.data.loader import Loader, Mixture, Shuffled, make_loader, open_loader
from dare.data.source import load_items, load_training_items
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.tokenizer import tiny_tokenizer
from dare.types import Example
from row_files import write

TOKENIZER, SPEC = tiny_tokenizer(), load_checkpoint("tiny:masked").model.spec


def rows(count, first=0):
    return [Item(first + i, Example((), {}), [], [i]) for i in range(count)]


def shown(batches):
    return [[(item.index, item.epoch) for item in batch] for batch in batches]


def assert_resumes(fresh, batches=12):
    """A loader stopped after any number of batches goes on as if it had not been."""
    whole = shown(islice(fresh(), batches))
    for stop in range(batches):
        first = fresh()
        assert shown(islice(first, stop)) == whole[:stop]
        state = json.loads(json.dumps(first.state_dict()))
        second = fresh()
        second.load_state_dict(state)
        assert shown(islice(second, batches - stop)) == whole[stop:]
    return whole


def test_every_epoch_is_another_permutation():
    drawn = [pair for batch in shown(islice(make_loader(rows(10), 4, 0), 5)) for pair in batch]
    first, second = drawn[:10], drawn[10:]
    assert sorted(first) == [(i, 0) for i in range(10)] and sorted(second) == [(i, 1) for i in range(10)]
    assert [i for i, _ in first] != [i for i, _ in second]
    assert drawn != [pair for batch in shown(islice(make_loader(rows(10), 4, 1), 5)) for pair in batch]


def test_batch_size_changes_no_order():
    small, large = (islice(make_loader(rows(7), size, 3), 12 // size) for size in (1, 4))
    assert [p for b in shown(small) for p in b] == [p for b in shown(large) for p in b]


def test_a_loader_resumes_anywhere():
    assert_resumes(lambda: make_loader(rows(10), 4, 0))


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (0.7, 0.2, 0.1), (5, 1, 1, 1, 1)])
def test_the_shares_hold_in_every_stretch(weights):
    mixture = Mixture([Shuffled(rows(9, 100 * n), n) for n in range(len(weights))], weights)
    drawn = [mixture.draw().index // 100 for _ in range(300)]
    counts = Counter()
    for total, source in enumerate(drawn, 1):
        counts[source] += 1
        assert all(abs(counts[n] - total * w / sum(weights)) < 1.5 for n, w in enumerate(weights))
    assert abs(counts[0] - 300 * weights[0] / sum(weights)) <= 1


def test_a_mixture_counts_the_epochs_of_each_source_and_resumes():
    def fresh():
        return Loader(Mixture([Shuffled(rows(3), 0), Shuffled(rows(8, 100), 1)], [1, 1]), 4)

    drawn = [pair for batch in assert_resumes(fresh) for pair in batch]
    assert max(epoch for index, epoch in drawn if index < 100) == 7
    assert max(epoch for index, epoch in drawn if index >= 100) == 2


@pytest.fixture
def task(tmp_path):
    for name, count in (("a", 10), ("b", 7)):
        write(
            tmp_path / f"{name}.jsonl",
            [{"prompt": f"{name}{i}", "completion": "x" * (i % 4 + 1)} for i in range(count)],
        )
    return TaskConfig(root=tmp_path, train="a.jsonl", max_prompt_tokens=40)


def training(task, room=8, **changes):
    return load_training_items(TaskConfig(**{**task.model_dump(), **changes}), TOKENIZER, SPEC, room, True)


def prompts(batches):
    return [item.example.prompt[0]["content"] for batch in batches for item in batch]


def test_a_mixture_of_files(task):
    found = training(task, train={"a.jsonl": 3, "b.jsonl": 1})
    assert [item.index for item in found.rows] == list(range(17))
    drawn = prompts(islice(open_loader(found, 4, 0), 10))
    assert Counter(name[0] for name in drawn) == {"a": 30, "b": 10}
    assert prompts(islice(open_loader(training(task, train={"a.jsonl": 1, "b.jsonl": 0}), 5, 0), 2)) == prompts(
        islice(open_loader(training(task), 5, 0), 2)
    )


def test_an_epoch_of_a_stream_has_every_row_once_and_resumes(task):
    found = training(task, stream=4)
    assert found.window == 4 and len(found.rows) == 4
    whole = assert_resumes(lambda: open_loader(training(task, stream=4), 3, 0), 10)
    drawn = [pair for batch in whole for pair in batch]
    for epoch in range(3):
        indices = [index for index, number in drawn if number == epoch]
        assert indices != sorted(indices) and sorted(indices) == [i * 2**20 for i in range(10)]
        # rows stay in their window
        assert {i // 2**20 for i in indices[:4]} == {0, 1, 2, 3}


def test_a_mixture_of_streams_resumes(task):
    changes = {"train": {"a.jsonl": 2, "b.jsonl": 1}, "stream": 3}
    whole = assert_resumes(lambda: open_loader(training(task, **changes), 3, 5), 10)
    assert len({index for batch in whole for index, _ in batch}) == 17


def test_a_stream_leaves_out_what_is_too_long(task):
    drawn = prompts(islice(open_loader(training(task, room=4, stream=3), 8, 0), 1))
    assert sorted(drawn) == [f"a{i}" for i in range(10) if i % 4 < 3]
    with pytest.raises(DareError, match="no row of a whole pass can be used"):
        training(task, room=1, stream=3)


def test_a_stream_names_a_bad_row_when_it_meets_it(task, tmp_path):
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"prompt": "q"}\n')
    loader = iter(open_loader(training(task, stream=5), 5, 0))
    next(loader), next(loader)
    with pytest.raises(DareError, match="row 10: no column 'completion'"):
        next(loader)


def test_a_stream_in_one_window_draws_the_same_rows_as_memory(task):
    streamed, held = (prompts(islice(open_loader(training(task, **s), 5, 0), 2)) for s in ({"stream": 99}, {}))
    assert sorted(streamed) == sorted(held)


def test_hub_datasets_read_as_one_are_not_streamed(task):
    with pytest.raises(DareError, match="cannot find its place again in hf:a, hf:b"):
        training(task, train=["hf:a", "hf:b"], stream=5)


def test_a_list_of_files_is_streamed(task):
    assert (
        len(assert_resumes(lambda: open_loader(training(task, train=["a.jsonl", "b.jsonl"], stream=4), 4, 0), 9)) == 9
    )


def test_generated_rows_are_not_streamed(task):
    with pytest.raises(DareError, match=r"digit_sums is generated, set task\.stream=null"):
        training(task, train="digit_sums", stream=5)


DOCUMENTS = ["one", "three three", "x" * 30, "five"]


def packed(tmp_path, size=8, **changes):
    write(tmp_path / "docs.jsonl", [{"text": text} for text in DOCUMENTS])
    return training(TaskConfig(root=tmp_path, train="docs.jsonl"), pack=size, **changes)


@pytest.mark.parametrize("size", [2, 8, 11, 500])
def test_packed_rows_are_the_documents_with_an_eos_behind_each(size, tmp_path):
    found = packed(tmp_path, size)
    ids = [token for item in found.rows for token in item.answer_ids]
    assert TOKENIZER.decode(ids) == "".join(f"{text}<|eos|>" for text in DOCUMENTS)
    assert {len(item.answer_ids) for item in found.rows[:-1]} <= {size} and len(found.rows[-1].answer_ids) <= size
    assert not any(item.prompt_ids or item.ends for item in found.rows)
    assert [item.index for item in found.rows] == list(range(len(found.rows)))


def test_streamed_packing_packs_each_window(tmp_path):
    found = packed(tmp_path, 8, stream=2)
    windows = ["one<|eos|>three three<|eos|>", f"{'x' * 30}<|eos|>five<|eos|>"]
    drawn = next(iter(open_loader(found, 7, 0)))
    for part, window in zip((drawn[:2], drawn[2:]), windows, strict=True):
        ordered = sorted(part, key=lambda item: item.index)
        assert TOKENIZER.decode([token for item in ordered for token in item.answer_ids]) == window
    assert_resumes(lambda: open_loader(packed(tmp_path, 8, stream=2), 3, 0), 6)


def test_packing_refuses_what_it_cannot_pack(tmp_path, task):
    with pytest.raises(DareError, match="is for rows with a text column alone"):
        training(task, pack=8)
    with pytest.raises(DareError, match=rf"the model reads {SPEC.context} tokens"):
        packed(tmp_path, SPEC.context + 1)


def test_held_out_rows_are_never_streamed(task):
    found = load_items(TaskConfig(**{**task.model_dump(), "stream": 2}), "test", TOKENIZER, SPEC, 8, answers=True)
    assert len(found.rows) == 10
