"""Where metrics go: one JSON line per step, trackers, and a progress bar with the time left."""

import json
import math
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dare.decoding.canvas import Canvas
from dare.decoding.denoise import Watch
from dare.decoding.speed import Speed
from dare.files import write_atomically, writing
from dare.traces.files import ROLLOUTS
from dare.train.tracker import Trackers

METRICS = "metrics.jsonl"


class RunLog:
    """Logs one phase ("sft" or "rl") of a run; ``start`` is the step a resumed run continues from."""

    def __init__(self, folder: Path, phase: str, start: int, total: int, shown: tuple[str, ...]):
        self.phase, self.shown, self.began = phase, shown, time.perf_counter()
        for name in (METRICS, ROLLOUTS):
            _forget_after(folder / name, phase, start)
        self.lines = (folder / METRICS).open("ab", buffering=0)
        self.progress = Progress(
            TextColumn(f"[bold]{phase.upper():>4}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}"),
            console=Console(file=sys.stderr),
        )
        self.bar = self.progress.add_task(phase, total=total, completed=start, metrics="")
        self.trackers = Trackers(folder, start, self.say)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        self.lines.close()
        self.trackers.close()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of ``step``; a value that is not finite is written as null."""
        values = {**metrics, "memory_gb": peak_memory_gb()}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = {"phase": self.phase, "step": step, "time_s": round(time.perf_counter() - self.began, 3), **finite}
        with writing(str(self.lines.name)):
            self.lines.write(json.dumps(line).encode() + b"\n")
        self.trackers.log(step, {f"{self.phase}/{name}": value for name, value in finite.items() if value is not None})
        text = "  ".join(f"{name} {values[name]:.3g}" for name in self.shown if name in values)
        self.progress.update(self.bar, completed=step, metrics=text)

    def say(self, text: str) -> None:
        """Print a line on stderr, above the bar."""
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def watch(self, rows: int) -> Watch | None:
        """Return what shows the speed of decoding ``rows`` answers until the next metrics; None off a terminal."""
        if not self.progress.console.is_terminal:
            return None
        speed = Speed()

        def show(canvas: Canvas) -> None:
            speed(canvas)
            self.progress.update(self.bar, metrics=f"rollout {speed.rows}/{rows}  {speed.rates()}")

        return show


def peak_memory_gb() -> float:
    """Largest resident memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _forget_after(path: Path, phase: str, step: int) -> None:
    """Drop lines of steps that a resumed run is about to take again; one that begins anew knows none."""
    if path.is_file():
        lines = path.read_text().splitlines(keepends=True)
        write_atomically(path, "".join(line for line in lines if not _is_later(line, phase, step)))


def _is_later(line: str, phase: str, step: int) -> bool:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return True  # the half line of a killed process
    return record.get("phase", phase) == phase and (record["step"] > step or not step)
