"""``dare view``: play saved rollouts in the terminal, or write them as a page."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from dare.errors import DareError
from dare.traces.files import check_target, read_traces
from dare.traces.page import write_page
from dare.traces.terminal import play, say
from dare.traces.trace import Trace


def view(place: str, html: Path | None) -> None:
    """Show row ``ROW`` (the first) of ``FILE[:ROW]``, or write it (all rows) to ``html``; -1 is the last row."""
    check_target(html, "--html", ".html")
    path, row = _parse(place)
    traces = read_traces(path)
    if not traces:
        raise DareError(f"{str(path)!r} holds no rollouts")
    if row is not None and not -len(traces) <= row < len(traces):
        raise DareError(f"{place!r}: the file has rows 0 to {len(traces) - 1}")
    if html is None:
        _show(traces, row or 0)
    else:
        write_page(html, traces if row is None else [traces[row]], str(path))
        Console(stderr=True).print(f"page: {html}", highlight=False, markup=False, soft_wrap=True)


def _show(traces: list[Trace], row: int) -> None:
    trace, out = traces[row], Console(highlight=False, markup=False, emoji=False)
    score = "" if trace.score is None else f", score {trace.score:.4g}"
    out.print(Text(f"row {row % len(traces)} of {len(traces)}: {trace.name}{score}", style="dim"), soft_wrap=True)
    say(trace.prompt, out)
    play(trace, out)
    if trace.expected:
        out.print(Text(f"expected: {trace.expected}", style="dim"), soft_wrap=True)


def _parse(place: str) -> tuple[Path, int | None]:
    path, _, row = place.rpartition(":")
    numbered = path and row.removeprefix("-").isdecimal() and not Path(place).exists()
    return (Path(path), int(row)) if numbered else (Path(place), None)
