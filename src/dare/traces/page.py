"""Traces as one self-contained HTML page, and the parts of it that the report shares."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from dare.files import write_atomically
from dare.traces.trace import Trace, symbol

# Both bounds keep a page small however many and long the answers are.
MAX_PROMPTS = 8
MAX_STATIC_CHARACTERS = 8_000


def environment() -> Environment:
    """Return the templates of the package; all text put into them is escaped."""
    templates = Environment(loader=PackageLoader("dare", ""), autoescape=True, trim_blocks=True)
    templates.filters["number"] = number
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return templates


def write_page(path: Path, traces: Iterable[Trace], title: str) -> None:
    """Write a page that plays the answers to the first ``MAX_PROMPTS`` prompts."""
    prompts, total = cards(traces)
    page = environment().get_template("traces/page.html.j2").render(title=title, prompts=prompts, total=total)
    write_atomically(path, page)


def cards(traces: Iterable[Trace]) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """Group traces by prompt, in the shape that ``player.html.j2`` takes; return also the number of prompts."""
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        groups.setdefault(trace.prompt, []).append(trace)
    kept = list(groups)[:MAX_PROMPTS]
    return {prompt: [_card(trace) for trace in groups[prompt]] for prompt in kept}, len(groups)


def number(value: object) -> str:
    """Return a number as readers like it, and a dash for what is none."""
    if not isinstance(value, int | float):
        return "–"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


def _card(trace: Trace) -> dict[str, Any]:
    shown, lines = trace.shown, trace.lines()
    given = [None if text is None else symbol(text) for text in trace.given[:shown]]
    writes = [write._replace(text=None if write.text is None else symbol(write.text)) for write in trace.writes]
    return {
        "trace": trace,
        "player": {"given": given, "writes": writes},
        "lines": _spread(lines, max(2, MAX_STATIC_CHARACTERS // (shown or 1))),
        "undecided": len(trace.given) - shown,
    }


def _spread(lines: Sequence[str], most: int) -> list[tuple[int, str]]:
    """At most ``most`` lines, evenly spaced, with their numbers from 1; the last one is kept."""
    count = min(most, len(lines))
    numbers = sorted({round((i + 1) * len(lines) / count) for i in range(count)})
    return [(at, lines[at - 1]) for at in numbers]
