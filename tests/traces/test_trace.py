import random

import pytest
import torch
from pydantic import ValidationError

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.traces.files import append_traces, read_traces, write_traces
from dare.traces.record import trace
from dare.traces.trace import MASK, Trace, printable, symbol
from rows import keys

DECODINGS = {
    "once": {"steps": 5},
    "ends early": {"steps": 2, "temperature": 3.0},
    "remask": {"remask": "running_confidence", "steps": 5},
    "edit": {"threshold": 0.02, "edit_threshold": 0.001, "max_post_steps": 3},
}


def decoded(model, **settings):
    checkpoint = load_checkpoint(model)
    prompts = [checkpoint.tokenizer(text)["input_ids"] for text in ("ab", "defgh", "i")]
    decoding = DecodingConfig(**{"max_new_tokens": 14, "block_size": 6, "temperature": 1.0, **settings})
    rollouts = denoise(checkpoint.model, prompts, decoding, keys(3), torch.arange(3))
    return rollouts, checkpoint.tokenizer


def row_of(tokens, steps):
    writes = sorted((step, i, tokens[i], None) for i, step in enumerate(steps) if step >= 0)
    return Trace(passes=max(steps, default=-1) + 1, given=(None,) * len(tokens), writes=writes)


def test_frames_follow_the_definition():
    rng = random.Random(0)
    for _ in range(50):
        steps = [rng.randint(-1, 6) for _ in range(rng.randint(0, 12))]
        tokens = [f"t{i}" for i in range(len(steps))]
        for done, frame in enumerate(row_of(tokens, steps).frames()):
            assert frame == [token if 0 <= step < done else None for token, step in zip(tokens, steps, strict=True)]


def test_lines_print_masks_and_special_tokens():
    assert row_of(["8", "*", "3", "<|eos|>", "?"], [2, 0, 1, 0, -1]).lines() == ["░*░⏎", "░*3⏎", "8*3⏎"]
    assert row_of(["a\n", "</s>"], [0, 0]).lines() == ["a↵⏎"]
    assert row_of(["a\tb"], [0]).lines() == ["a⇥b"]
    assert symbol("\x1b[2J") == printable("\x1b[2J") == "␛[2J"


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
@pytest.mark.parametrize("settings", DECODINGS)
def test_a_trace_replays_what_the_decoder_did(model, settings):
    rollouts, tokenizer = decoded(model, **DECODINGS[settings])
    for row in range(3):
        one = trace(rollouts, row, tokenizer)
        open_T = rollouts.seqs.response_BT[row]
        ids, steps = rollouts.seqs.ids_BT[row, open_T].tolist(), rollouts.unmask_step_BT[row, open_T].tolist()
        final = [tokenizer.decode([token]) if step >= 0 else None for token, step in zip(ids, steps, strict=True)]
        assert one.frames()[0] == [None] * 14 and one.frames()[-1] == final
        assert len(one.frames()) == one.passes + 1 == rollouts.forwards_B[row] + 1
        lasting = {(write.at, write.position): write.logp for write in one.writes if write.logp is not None}
        logps = rollouts.logp_BT[row, open_T].tolist()
        for position, step in enumerate(steps):
            assert step < 0 or lasting[step, position] == pytest.approx(logps[position], abs=1e-4)
        if rollouts.states_BST is not None:
            mask = tokenizer.decode([tokenizer.mask_token_id])
            for at, frame in enumerate(one.frames()[:-1]):
                before = [tokenizer.decode([token]) for token in rollouts.states_BST[row, at, open_T].tolist()]
                assert [text or mask for text in frame] == before


def test_rewriting_decoders_show_that_they_do():
    rollouts, tokenizer = decoded("tiny:masked", remask="running_confidence", steps=14, temperature=0.0)
    assert any(write.text is None for row in range(3) for write in trace(rollouts, row, tokenizer).writes)


def test_an_unknown_order_gives_the_text_alone():
    rollouts, tokenizer = decoded("tiny:masked")
    untold = torch.full_like(rollouts.unmask_step_BT, -1)
    nothing = torch.full_like(rollouts.logp_BT, torch.nan)
    told = type(rollouts)(**{**vars(rollouts), "unmask_step_BT": untold, "logp_BT": nothing, "states_BST": None})
    one = trace(told, 0, tokenizer)
    assert one.passes == 0 and one.writes == () and one.lines() == []
    assert None not in one.given and one.frames() == [list(one.given)]


def test_files_give_back_what_was_written(tmp_path):
    rollouts, tokenizer = decoded("tiny:block", **DECODINGS["edit"])
    texts = {"name": "a\u2028b\n", "prompt": "<", "score": 0.1 + 0.2, "step": 3, "expected": "é"}
    rows = [trace(rollouts, row, tokenizer).model_copy(update=texts) for row in range(3)]
    write_traces(tmp_path / "rollouts.jsonl", rows[:2])
    append_traces(tmp_path / "rollouts.jsonl", rows[2:])
    assert read_traces(tmp_path) == read_traces(tmp_path / "rollouts.jsonl") == rows


def test_half_a_last_line_is_left_out_and_a_wrong_file_refused(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    write_traces(file, [row_of(["a"], [0])] * 2)
    file.write_text(file.read_text()[:-9])
    assert len(read_traces(file)) == 1
    file.write_text('{"passes": 1, "given": [null], "writes": [[0, 1, "a", null]]}\n')
    with pytest.raises(DareError, match=r"rollouts\.jsonl:1 is no saved rollout .*outside the row"):
        read_traces(file)
    with pytest.raises(DareError, match="cannot be read"):
        read_traces(tmp_path / "nowhere")
    with pytest.raises(ValidationError, match="order"):
        Trace(passes=2, given=(None,), writes=((1, 0, "a", None), (0, 0, "b", None)))
    assert MASK not in file.read_text()
