"""``dare generate`` and ``dare view`` as a user types them."""

import pytest
from typer.testing import CliRunner

from dare.cli import app
from dare.errors import DareError
from dare.traces.files import read_traces

FAST = ["decoding.max_new_tokens=8", "decoding.steps=4"]


def dare(*words, typed=None):
    done = CliRunner().invoke(app, [str(word) for word in words], input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_holes_are_filled_and_the_rest_stays(model):
    out = dare("generate", model, "--text", "12+<mask*3>=5 <mask>!")
    assert out.startswith("12+") and "=5 " in out and out.rstrip("\n").endswith("!")


def test_a_suffix_stays_behind_the_answer_and_a_prompt_may_be_empty():
    out = dare("generate", "tiny:masked", *FAST, "--prompt", "", "--raw", "--suffix", " end")
    assert out.rstrip("\n").endswith(" end")


def test_samples_differ_and_repeat():
    words = ["generate", "tiny:masked", *FAST, "decoding.temperature=1", "--prompt", "1+1=", "--n", 3]
    first = dare(*words)
    assert first == dare(*words) != dare(*words, "seed=1")
    texts = first.split("--- ")[1:]
    assert len(texts) == 3 and len({text.partition("\n")[2] for text in texts}) == 3


def test_a_stop_string_cuts_the_answer():
    words = ["generate", "tiny:masked", *FAST, "--prompt", "1+1="]
    whole = dare(*words).rstrip("\n")
    middle = whole[len(whole) // 2]
    assert dare(*words, "--stop", middle).rstrip("\n") == whole[: whole.index(middle)]


def test_a_conversation_takes_turns_and_forgets_on_request():
    out = dare("generate", "tiny:masked", *FAST, "--chat", typed="1+1=\n2+2=\n/new\n1+1=\n\n")
    lines = out.rstrip("\n").split("\n")
    assert len(lines) >= 3 and lines[0] and lines[-1]


def test_what_was_saved_opens_again(tmp_path):
    words = ["generate", "tiny:masked", *FAST, "--prompt", "1+1=", "--trace"]
    out = dare(*words, "--save", tmp_path / "a.jsonl", "--html", tmp_path / "a.html")
    (one,) = read_traces(tmp_path / "a.jsonl")
    assert len(one.lines()) == one.passes and all(line in out for line in one.lines())
    shown = dare("view", tmp_path / "a.jsonl")
    assert all(line in shown for line in one.lines())
    dare("view", f"{tmp_path / 'a.jsonl'}:0", "--html", tmp_path / "b.html")
    for page in ("a.html", "b.html"):
        text = (tmp_path / page).read_text()
        assert "<script" in text and "http://" not in text and "https://" not in text and "src=" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of --prompt, --text and --chat"),
        (["--text", "a <mask>"], "remove decoding.max_new_tokens"),
        (["--prompt", "a", "--n", 2], "decoding.temperature=0"),
        (["--prompt", "a", "--suffix", "b", "--stop", "c"], "--stop"),
        (["--prompt", "a" * 5000], "do not fit the context"),
        (["--prompt", "a", "--html", "page.txt"], ".html"),
    ],
)
def test_requests_that_cannot_be_met_say_why(words, message):
    with pytest.raises(DareError, match=message.replace(".", r"\.")):
        dare("generate", "tiny:masked", *FAST, *words)


def test_a_text_without_a_hole_says_how_to_write_one():
    with pytest.raises(DareError, match="has no masks; write <mask>"):
        dare("generate", "tiny:masked", "--text", "no holes")


def test_view_names_what_it_cannot_open(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"passes": -1}\n')
    for place, message in ((tmp_path / "none.jsonl", "cannot be read"), (tmp_path / "bad.jsonl", "no saved rollout")):
        with pytest.raises(DareError, match=message):
            dare("view", place)
