"""``dare data check``: look at every row of files before a run does, and print what is there."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from dare.data.check import Finding, Measure, check_source
from dare.data.config import TaskConfig
from dare.data.encode import tokenise
from dare.models.tiny import TINY_PREFIX
from dare.models.tokenizer import load_tokenizer, tiny_tokenizer
from dare.train.folder import newest_checkpoint
from dare.types import Example

_BAR = 14


def check(names: Sequence[str], model: str | None, question: str | None, answer: str | None, show: int) -> bool:
    """Check and print each source; return whether all rows of all of them are good.

    Lengths are in tokens of ``model``, of which only the tokenizer is read, or in characters without one.
    """
    task = TaskConfig(question_column=question, answer_column=answer)
    measure = _characters if model is None else _tokens(model)
    findings = []
    for name in names:
        findings.append(check_source(name, measure, task, show))
        _print(findings[-1], "characters" if model is None else "tokens")
    return all(finding.good for finding in findings)


def _characters(example: Example) -> tuple[int, int]:
    return sum(len(turn["content"]) for turn in example.prompt), len(example.answer or "")


def _tokens(model: str) -> Measure:
    path = newest_checkpoint(model)
    tokenizer = tiny_tokenizer() if path.startswith(TINY_PREFIX) else load_tokenizer(Path(path))

    def measure(example: Example) -> tuple[int, int]:
        prompt_ids, answer_ids = tokenise(tokenizer, example)
        return len(prompt_ids), len(answer_ids)

    return measure


def _print(finding: Finding, unit: str) -> None:
    console = Console(highlight=False)
    console.print(Text.assemble((finding.name, "bold"), ": ", _verdict(finding)), soft_wrap=True)
    for shape in finding.shapes:
        console.print(f"  shape: {shape}")
    if finding.broken:
        console.print(Padding(Text(finding.broken), (0, 2)))
    if finding.errors:
        console.print(_errors(finding))
    if finding.prompts:
        groups = {"prompt": finding.prompts, "answer": finding.answers}
        console.print(_histogram({name: lengths for name, lengths in groups.items() if any(lengths)}, unit))


def _verdict(finding: Finding) -> Text:
    if finding.broken:
        return Text("cannot be read", "bold red")
    if finding.good:
        return Text(f"{finding.rows:,} rows, all good", "green")
    return Text(f"{finding.rows:,} rows, {finding.bad:,} bad" if finding.rows else "no rows", "bold red")


def _errors(finding: Finding) -> Table:
    several = len({error.source for error in finding.errors}) > 1
    heads = [Column("file", overflow="fold")] if several else []
    heads += [Column("row", justify="right", no_wrap=True), Column("field", no_wrap=not several, overflow="fold")]
    table = Table(*heads, "problem", "what to do", box=SIMPLE_HEAD)
    for error in finding.errors:
        table.add_row(*([Text(error.source)] if several else []), str(error.row), *map(Text, error.told))
    if finding.bad > len(finding.errors):
        table.caption = f"and {finding.bad - len(finding.errors):,} more"
    return table


def _histogram(groups: Mapping[str, Sequence[int]], unit: str) -> Table:
    """Lengths by powers of two, and the share of rows that are no longer."""
    edges = _edges([length for lengths in groups.values() for length in lengths])
    table = Table(Column(unit, justify="right", no_wrap=True), box=SIMPLE_HEAD)
    for name, lengths in groups.items():
        table.add_column(f"{name}s\nlongest {max(lengths):,}", no_wrap=True)
        table.add_column("rows", justify="right")
        table.add_column("≤", justify="right", no_wrap=True)
    columns = [column for lengths in groups.values() for column in _columns(lengths, edges)]
    for edge, *cells in zip(edges, *columns, strict=True):
        table.add_row(f"≤ {edge:,}", *cells)
    return table


def _edges(lengths: Sequence[int]) -> list[int]:
    first, last = (max(0, length - 1).bit_length() for length in (min(lengths), max(lengths)))
    return [2**power for power in range(first, last + 1)]


def _columns(lengths: Sequence[int], edges: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    """Bars, counts, and the share of rows up to each edge."""
    counts = [0] * len(edges)
    for length in lengths:
        counts[bisect_left(edges, length)] += 1
    bars = ["█" * round(_BAR * count / max(counts)) or ("▏" if count else "") for count in counts]
    shares = [f"{100 * total / len(lengths):.0f} %" for total in accumulate(counts)]
    return bars, [f"{count:,}" if count else "" for count in counts], shares
