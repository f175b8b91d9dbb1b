"""Denoising in a terminal: live while it happens, or played from a trace."""

import time
from itertools import pairwise

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from transformers import PreTrainedTokenizerBase

from dare.decoding.canvas import Canvas
from dare.decoding.speed import Speed
from dare.traces.record import words
from dare.traces.trace import MASK, Frame, Trace, printable, symbol

_PAUSE, _LONGEST = 0.08, 10.0
"""Seconds a pass stays on screen at least, live and played; a played trace takes at most the other."""


def plain(console: Console) -> bool:
    """Whether the console cannot move its cursor, so that steps are printed one below the other."""
    return not console.is_terminal or console.is_dumb_terminal


class Animation:
    """A ``Watch`` that shows rows while they are decoded, from position ``start`` on; a context that owns the screen.

    A small model's passes are slowed down until they can be followed; showing them counts towards no speed.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start: int, console: Console):
        self.tokenizer, self.start, self.speed = tokenizer, start, Speed()
        self.frames: dict[int, Frame] = {}
        self.bodies: dict[int, Text] = {}
        self.live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> "Animation":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, rows: Canvas) -> None:
        """Show the rows of one pass."""
        self.speed(rows)
        with self.speed.paused():
            for row, number in enumerate(rows.row_N.tolist()):
                blank, frame = self._frames(rows, row)
                self.bodies[number] = body(self.frames.get(number, blank), frame)
                self.frames[number] = frame
            parts = [part for number in sorted(self.bodies) for part in (self.bodies[number], Text())]
            header = f"step {self.speed.steps}  {self.speed.tokens} tokens  {self.speed.rates()}"
            self.live.update(Group(Text(header, style="bold"), *parts[:-1]), refresh=True)
            time.sleep(_PAUSE)

    def _frames(self, rows: Canvas, row: int) -> tuple[Frame, Frame]:
        """The row before its first pass, and now."""
        span = slice(self.start, int(rows.lengths_N[row]))
        open_T = rows.response_NT[row, span]
        texts = words(self.tokenizer, rows.ids_NT[row, span].tolist())
        # what the end of a row left open was never decided
        undecided_T = open_T & (rows.step_NT[row, span] < 0)
        blank, now = (
            [None if masked else text for masked, text in zip(masked_T.tolist(), texts, strict=True)]
            for masked_T in (open_T, undecided_T)
        )
        return blank, now


def play(trace: Trace, console: Console) -> None:
    """Show a trace pass by pass, in place where the terminal can, else one line per pass; then its text."""
    if plain(console):
        print_steps(trace, console)
    else:
        _animate(trace, console)
    say(trace.completion, console)


def say(text: str, console: Console) -> None:
    """Print text as it is, on a terminal without the control characters."""
    if console.is_terminal:
        console.print(Text(printable(text)), soft_wrap=True)
    else:
        print(text, file=console.file)


def print_steps(trace: Trace, console: Console) -> None:
    """Print one line per pass."""
    for step, line in enumerate(trace.lines(), start=1):
        console.print(Text(f"{step:4d}  {line}"), soft_wrap=True)


def _animate(trace: Trace, console: Console) -> None:
    frames = [frame[: trace.shown] for frame in trace.frames()]
    total = sum(text is None for text in frames[0])
    pause = min(_PAUSE, _LONGEST / len(frames))
    with Live(console=console, auto_refresh=False) as live:
        for done, (before, now) in enumerate(pairwise([frames[0], *frames])):
            decided = total - sum(text is None for text in now)
            header = f"step {done}/{trace.passes}  {decided}/{total} tokens  {decided / max(1, done):.2f} tokens/step"
            live.update(Group(Text(header, style="bold"), body(before, now)), refresh=True)
            time.sleep(pause)


def body(before: Frame, now: Frame) -> Text:
    """Return a row: masks dim, tokens of this pass green, replaced ones yellow, masked again red."""
    text = Text()
    for old, new in zip(before, now, strict=True):
        shown = MASK if new is None else symbol(new).replace("↵", "↵\n")
        text.append(shown, style=_style(old, new))
    return text


def _style(old: str | None, new: str | None) -> str:
    if new is None:
        return "dim" if old is None else "red"
    if old is None:
        return "bold green"
    return "" if old == new else "bold yellow"
