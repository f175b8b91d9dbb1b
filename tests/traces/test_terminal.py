import io
import re

import pytest
import torch
from rich.console import Console

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import infill
from dare.models.checkpoint import load_checkpoint
from dare.traces import terminal
from dare.traces.record import trace
from dare.traces.terminal import Animation, body, play, say
from rows import keys

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(terminal, "_PAUSE", 0.0)


def console(is_terminal=True):
    return Console(
        file=io.StringIO(), force_terminal=is_terminal, width=100, legacy_windows=False, _environ={"TERM": "xterm"}
    )


def decoded(out, **settings):
    checkpoint = load_checkpoint("tiny:masked")
    mask = checkpoint.model.spec.mask_id
    texts = [[*checkpoint.tokenizer("x = ")["input_ids"], *[mask] * 6, *checkpoint.tokenizer(";")["input_ids"]]] * 2
    decoding = DecodingConfig(max_new_tokens=6, temperature=1.0, stop_at_eos=False, **settings)
    with Animation(checkpoint.tokenizer, 0, out) as watch:
        rollouts = infill(checkpoint.model, texts, decoding, keys(2), torch.arange(2), watch=watch)
    return rollouts, checkpoint.tokenizer, watch


def test_the_live_rows_are_those_of_the_trace():
    out = console()
    rollouts, tokenizer, watch = decoded(out, steps=3)
    shown = ESCAPES.sub("", out.file.getvalue())
    for row in range(2):
        one = trace(rollouts, row, tokenizer, start=0)
        assert watch.frames[row] == one.frames()[-1]
        assert one.given[:4] == tuple("x = ") and one.given[-1] == ";"
        assert all(line.replace("↵", "↵\n") in shown for line in one.lines())
    assert "step 3  12 tokens  2.00 tokens/forward" in shown


def test_marks_of_new_replaced_and_reopened_tokens():
    shown = body([None, "a", "b", "c", None], ["n", "a", "x", None, None])
    assert shown.plain == "nax░░"
    assert [(span.start, span.style) for span in shown.spans] == [
        (0, "bold green"),
        (2, "bold yellow"),
        (3, "red"),
        (4, "dim"),
    ]


def test_a_trace_plays_in_place_or_line_by_line():
    rollouts, tokenizer, _ = decoded(console(), steps=3, remask="running_confidence")
    one = trace(rollouts, 0, tokenizer).model_copy(update={"completion": "the \x1b[2J end"})
    film, lines = console(), console(is_terminal=False)
    play(one, film)
    play(one, lines)
    assert f"step 0/{one.passes}  0/6 tokens" in film.file.getvalue() and "\x1b[?25h" in film.file.getvalue()
    assert "the ␛[2J end" in film.file.getvalue()
    assert lines.file.getvalue().splitlines()[: one.passes] == [f"{i:4d}  {s}" for i, s in enumerate(one.lines(), 1)]
    assert lines.file.getvalue().endswith("the \x1b[2J end\n"), "what is piped on stays as it is"


def test_text_is_no_markup():
    out = console()
    say(":smile: [bold]x[/]", out)
    assert out.file.getvalue() == ":smile: [bold]x[/]\n"
