"""``dare generate``: one request, or a conversation at the terminal."""

import sys
from contextlib import suppress

from rich.console import Console

from dare.errors import DareError
from dare.generate.config import GenerateConfig, Wishes
from dare.generate.layout import Layout, lay_out, lay_out_chat
from dare.generate.writer import Writer
from dare.models.chat import Turn
from dare.progress import say_plan
from dare.train.run import load_model


def generate(model: str, wishes: Wishes, config: GenerateConfig) -> None:
    """Print what the model writes on stdout; raises ``DareError`` for a request it cannot meet."""
    wishes.check(config.decoding)
    checkpoint = load_model(model, config.seed, config.dtype, config.device)
    writer = Writer(model, checkpoint, wishes, config)
    if wishes.chat:
        converse(writer)
    else:
        answer(writer)


def answer(writer: Writer) -> None:
    """Meet a single request."""
    wishes, spec, config = writer.wishes, writer.model.spec, writer.config
    layout = lay_out(wishes, writer.tokenizer, spec, config.decoding)
    masks = layout.ids.count(spec.mask_id)
    say_plan(layout.decoding, spec, None if masks == layout.decoding.max_new_tokens else masks)
    if spec.block_size and layout.encloses(spec.mask_id):
        _note(f"this model writes blocks of {spec.block_size} from left to right and sees no text behind its block")
    writer.write(layout)


def converse(writer: Writer) -> None:
    """Answer line after line until an empty one, with all that was said before; ``/new`` forgets it.

    A conversation that no longer fits the context is an error message, and the line is taken back.
    """
    with suppress(ImportError):
        import readline  # noqa: F401  editing and history for input()
    say_plan(writer.config.decoding, writer.model.spec)
    _note("an empty line or Ctrl-D ends, /new starts a new conversation")
    turns: list[Turn] = []
    number = 0
    while line := _ask():
        if line == "/new":
            turns = []
            continue
        asked = [*turns, {"role": "user", "content": line}]
        try:
            layout = _lay_out(writer, asked)
        except DareError as error:
            _note(f"error: {error}; /new starts a new conversation")
            continue
        (text,) = writer.write(layout, number)
        turns = [*asked, {"role": "assistant", "content": text}]
        number += 1


def _lay_out(writer: Writer, turns: list[Turn]) -> Layout:
    return lay_out_chat(turns, writer.tokenizer, writer.model.spec, writer.config.decoding)


def _ask() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return ""


def _note(text: str) -> None:
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(text, style="dim")
