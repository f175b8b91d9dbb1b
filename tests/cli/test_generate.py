"""``dare generate`` and ``dare view`` as a user runs them, on the embedded models."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dare.cli import app, main
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import infill
from dare.diffusion.noise import key
from dare.models.chat import encode_prompt
from dare.models.checkpoint import load_checkpoint
from dare.traces.files import read_traces
from dare.traces.trace import Trace

Dare = Callable[..., tuple[str, str]]
MODELS = ("tiny:masked", "tiny:block")
SHORT = "decoding.max_new_tokens=10"
WARM = "decoding.temperature=1"


@pytest.fixture
def dare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Dare:
    """Run a command in an empty folder; return stdout and stderr. ``status`` is the expected exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, status: int = 0) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["dare", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out = capsys.readouterr()
        assert (stop.value.code or 0) == status, out.err
        return out.out, out.err

    return run


def saved(dare: Dare, *arguments: str) -> list[Trace]:
    """The traces of one call."""
    Path("rows.jsonl").unlink(missing_ok=True)
    dare("generate", *arguments, "--save", "rows.jsonl")
    return read_traces(Path("rows.jsonl"))


def decoded(model: str, ids: list[int], **settings: object) -> list[str]:
    """The tokens that the library writes into the masks of ``ids``."""
    checkpoint, row = load_checkpoint(model), torch.zeros(1, dtype=torch.int64)
    rollouts = infill(checkpoint.model, [ids], DecodingConfig(**settings), key(0, "generate", 0, row), row)
    return [checkpoint.tokenizer.decode([token]) for token in rollouts.seqs.ids_BT[0].tolist()]


def ids_of(model: str, *parts: str | int) -> list[int]:
    """Token ids of texts and numbers of masks."""
    checkpoint = load_checkpoint(model)
    mask_id = checkpoint.model.spec.mask_id
    pieces = [[mask_id] * part if isinstance(part, int) else checkpoint.tokenizer(part)["input_ids"] for part in parts]
    return [token for piece in pieces for token in piece]


@pytest.mark.parametrize("model", MODELS)
def test_masks_anywhere_are_filled_and_the_given_text_stays(dare: Dare, model: str) -> None:
    (one,) = saved(dare, model, "--text", "ab <mask*3>, c<mask>d<|mask|>", WARM)
    assert one.given == (*"ab ", None, None, None, *", c", None, "d", None)
    expected = decoded(
        model, ids_of(model, "ab ", 3, ", c", 1, "d", 1), max_new_tokens=9, stop_at_eos=False, temperature=1.0
    )
    assert one.frames()[-1] == expected
    assert one.completion.startswith("ab ") and ", c" in one.completion


@pytest.mark.parametrize("model", MODELS)
def test_prefix_and_suffix_are_fixed(dare: Dare, model: str) -> None:
    (one,) = saved(dare, model, "--raw", "--prompt", "pre", "--suffix", "post", SHORT)
    assert one.given == (*[None] * 10, *"post") and one.completion.endswith("post")
    assert one.frames()[-1] == decoded(model, ids_of(model, "pre", 10, "post"), max_new_tokens=10)[3:]


def test_a_masked_model_reads_the_suffix(dare: Dare) -> None:
    answers = [saved(dare, "tiny:masked", "--prompt", "a", "--suffix", end, SHORT)[0] for end in ("xyz", "123")]
    assert answers[0].frames()[-1][:10] != answers[1].frames()[-1][:10]


@pytest.mark.parametrize("model", MODELS)
def test_an_empty_prompt_writes_from_nothing(dare: Dare, model: str) -> None:
    (one,) = saved(dare, model, "--raw", "--prompt", "", SHORT)
    assert one.given == (None,) * 10 and one.frames()[-1] == decoded(model, ids_of(model, 10), max_new_tokens=10)


@pytest.mark.parametrize("model", MODELS)
def test_samples_differ_and_repeat(dare: Dare, model: str) -> None:
    rows = saved(dare, model, "--prompt", "a", "--n", "3", SHORT, WARM)
    assert len({row.completion for row in rows}) == 3
    assert saved(dare, model, "--prompt", "a", "--n", "3", SHORT, WARM) == rows
    (alone,) = saved(dare, model, "--prompt", "a", SHORT, WARM)
    assert alone.writes == rows[0].writes
    assert saved(dare, model, "--prompt", "a", "--n", "3", SHORT, WARM, "seed=1") != rows
    out, _ = dare("generate", model, "--prompt", "a", "--n", "2", SHORT, WARM)
    assert out.startswith("--- 1/2\n") and "--- 2/2\n" in out


def test_samples_without_noise_are_refused_but_random_order_has_some(dare: Dare) -> None:
    _, error = dare("generate", "tiny:masked", "--prompt", "a", "--n", "2", SHORT, status=2)
    assert "temperature=0" in error
    assert len(saved(dare, "tiny:masked", "--prompt", "a", "--n", "2", SHORT, "decoding.rule=random")) == 2


def test_a_stop_string_cuts_the_text_and_ends_after_its_block(dare: Dare) -> None:
    layers = ("decoding.max_new_tokens=32", "decoding.block_size=4", "seed=1", "decoding.stop_at_eos=false")
    (whole,) = saved(dare, "tiny:masked", "--prompt", "a", *layers)
    stop = next(
        text for text in whole.frames()[-1][5:] if text and text.isprintable() and text.isascii() and len(text) == 1
    )
    (cut,) = saved(dare, "tiny:masked", "--prompt", "a", "--stop", "unheard of", "--stop", stop, *layers)
    assert cut.completion == whole.completion[: whole.completion.index(stop)]
    ended = next(i for i, text in enumerate(whole.frames()[-1]) if text == stop) // 4 * 4 + 4
    assert cut.passes == ended < whole.passes
    assert cut.frames()[-1] == [*whole.frames()[-1][:ended], *[None] * (32 - ended)]


def test_a_conversation_remembers_what_was_said(tmp_path: Path) -> None:
    file, long = tmp_path / "chat.jsonl", "x" * 5000
    command = ["generate", "tiny:masked", "--chat", "--save", str(file), SHORT, WARM]
    shown = CliRunner().invoke(app, command, input=f"hello\n{long}\nagain\n/new\nhello\n\nnever read\n")
    assert shown.exit_code == 0, shown.output
    assert "do not fit the context" in shown.stderr and shown.stderr.count("error") == 1
    first, second, third = read_traces(file)
    assert second.prompt == f"hello\n{first.completion}\nagain" and third.prompt == "hello"
    said = [("user", "hello"), ("assistant", first.completion), ("user", "again")]
    checkpoint, row = load_checkpoint("tiny:masked"), torch.zeros(1, dtype=torch.int64)
    ids = encode_prompt(checkpoint.tokenizer, [{"role": role, "content": text} for role, text in said])
    decoding = DecodingConfig(max_new_tokens=10, temperature=1.0)
    texts = [[*ids, *[checkpoint.model.spec.mask_id] * 10]]
    rollouts = infill(checkpoint.model, texts, decoding, key(0, "generate", 1, row), row)
    answer = [checkpoint.tokenizer.decode([token]) for token in rollouts.seqs.ids_BT[0, len(ids) :].tolist()]
    assert second.frames()[-1] == answer


def test_steps_are_printed_where_there_is_no_terminal(dare: Dare) -> None:
    layers = ("decoding.max_new_tokens=6", "decoding.steps=3")
    out, error = dare("generate", "tiny:masked", "--raw", "--prompt", "a", "--suffix", "!", "--trace", *layers)
    lines = out.splitlines()
    assert [line[:6] for line in lines[:3]] == ["   1  ", "   2  ", "   3  "]
    assert [line.count("░") for line in lines[:3]] == [4, 2, 0] and all(line.endswith("!") for line in lines[:3])
    assert "\x1b" not in out and error.startswith("6 positions in one block, 3 steps a block (2 tokens a step)")


class Page(HTMLParser):
    """Collects tags, the texts of data scripts, and attributes that would load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.data, self.loads, self.inside = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [name for name, _ in attributes if name in ("src", "href", "action")]
        self.inside = ("type", "application/json") in attributes

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.data.append(json.loads(data))
            self.inside = False


def test_a_page_is_self_contained_and_holds_the_steps(dare: Dare) -> None:
    arguments = ("tiny:block", "--prompt", "a", "--n", "2", SHORT, WARM, "decoding.edit_threshold=0.001")
    rows = saved(dare, *arguments, "--html", "pages/a.html")
    text = Path("pages/a.html").read_text("utf-8")
    page = Page(text)
    assert "://" not in text and not page.loads and "link" not in page.tags and "img" not in page.tags
    assert len(page.data) == 2 and page.tags.count("section") == 2 and page.tags.count("html") == 1
    for row, data in zip(rows, page.data, strict=True):
        assert [write[:2] for write in data["writes"]] == [[write.at, write.position] for write in row.writes]
        assert any(write.at > 0 and write.logp is None for write in row.writes), "edits are part of it"


def test_saved_rollouts_reopen(dare: Dare) -> None:
    rows = saved(dare, "tiny:masked", "--prompt", "a", "--n", "3", SHORT, WARM, "--html", "direct.html")
    out, _ = dare("view", "rows.jsonl:-1")
    assert "row 2 of 3" in out and all(line in out for line in rows[2].lines())
    dare("view", "rows.jsonl", "--html", "again.html")
    assert Page(Path("again.html").read_text()).data == Page(Path("direct.html").read_text()).data
    dare("view", "rows.jsonl:1", "--html", "one.html")
    assert len(Page(Path("one.html").read_text()).data) == 1
    dare("generate", "tiny:masked", "--prompt", "b", "--save", "rows.jsonl", SHORT)
    assert read_traces(Path("rows.jsonl"))[:3] == rows and len(read_traces(Path("rows.jsonl"))) == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give one of --prompt, --text and --chat"),
        (["--prompt", "a", "--chat"], "got prompt and chat"),
        (["--text", "no masks"], "write <mask>, or <mask*8> for eight"),
        (["--text", "<mask*99999999999>"], "do not fit the context of 4096"),
        (["--text", "<mask>", "decoding.max_new_tokens=3"], "remove decoding.max_new_tokens"),
        (["--text", "<mask>", "--suffix", "b"], "behind the masks of --text"),
        (["--prompt", "a <|mask|>"], "use --text to have masks filled in"),
        (["--prompt", "a", "--stop", ""], "give a text"),
        (["--prompt", "a", "--suffix", "b", "--stop", "c"], "--stop cuts an answer that text follows"),
        (["--prompt", "a", "--n", "0"], "give at least 1"),
        (["--chat", "--raw"], "remove --suffix, --raw and --n"),
        (["--prompt", "a", "--html", "a.txt"], "give the name of a .html file"),
        (["--prompt", "a", "--save", "."], "give the name of a .jsonl file"),
        (["--prompt", "a", "decoding.max_new_tokens=4096"], "do not fit the context of 4096"),
    ],
)
def test_a_wrong_request_is_one_clear_line(dare: Dare, arguments: list[str], expected: str) -> None:
    out, error = dare("generate", "tiny:masked", *arguments, status=2)
    assert not out and error.startswith("error: ") and expected in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "expected"),
    [("none.jsonl", "cannot be read"), ("rows.jsonl:1", "rows 0 to 0"), ("page.jsonl", "is no saved rollout")],
)
def test_a_wrong_file_is_one_clear_line(dare: Dare, place: str, expected: str) -> None:
    saved(dare, "tiny:masked", "--prompt", "a", "decoding.max_new_tokens=2")
    Path("page.jsonl").write_text("<html>\n")
    _, error = dare("view", place, status=2)
    assert error.startswith("error: ") and expected in error and error.count("\n") == 1
