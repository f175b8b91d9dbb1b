"""What a decoding call tells on stderr: its plan, and a bar while it lasts."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dare.data.items import Items
from dare.decoding.canvas import Canvas
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import Watch
from dare.decoding.describe import describe
from dare.decoding.speed import Speed
from dare.models.base import ModelSpec


def say_plan(decoding: DecodingConfig, spec: ModelSpec, masks: int | None = None) -> None:
    """Print what the settings come to, see ``describe``."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(describe(decoding, spec, masks), style="dim")


def say_rows(items: Items) -> None:
    """Print how many training rows were left out or shortened, where any were."""
    if items.dropped or items.cut:
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"training rows: {items.summary()}", style="dim")


@contextmanager
def decoding_bar(label: str, rows: int, positions: int) -> Iterator[Watch | None]:
    """Yield a ``Watch`` that shows on stderr how many of ``positions`` are settled; None where that is no terminal."""
    console, speed = Console(stderr=True), Speed()
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn(f"[bold]{label}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=positions, speed="")

        def watch(canvas: Canvas) -> None:
            speed(canvas)
            bar.update(task, completed=speed.settled, speed=f"{speed.rows}/{rows} rows  {speed.rates()}")

        yield watch
