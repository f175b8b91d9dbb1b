"""Writes checkpoints: whole or not at all, at once or in a thread while training goes on."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dare.engines.local import LocalEngine
from dare.engines.snapshot import snapshot
from dare.files import folder_atomically, sync, writing
from dare.traces.files import ROLLOUTS
from dare.train.config import TrainConfig
from dare.train.folder import checkpoint_path, checkpoints, point_best, rotate
from dare.train.log import METRICS
from dare.train.manifest import write_manifest

STATE = "trainer.json"


@dataclass
class Saver:
    """Saves into one run folder. With ``train.save_async`` one save at a time is written in the background.

    Its failure is raised by the next ``check``, ``save`` or ``wait``.
    """

    folder: Path
    train: TrainConfig
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoint"))
    pending: "Future[None] | None" = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thread.shutdown()

    def save(self, engine: LocalEngine, state: dict[str, Any]) -> None:
        """Write the checkpoint of ``state["step"]``; in the background where the run is set so."""
        self.wait()
        if self.train.save_async:
            self.pending = self.thread.submit(self._write, snapshot(engine), state)
        else:
            self._write(engine, state)

    def wait(self) -> None:
        """Return when nothing is being written any more."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def check(self) -> None:
        """Raise what went wrong in the background, without waiting."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def _write(self, engine: LocalEngine, state: dict[str, Any]) -> None:
        final, best = checkpoint_path(self.folder, state["step"]), state["best"]
        best_step = None if best is None else best["step"]
        kept = [f"the last one, {path.name}, is intact" for path in checkpoints(self.folder)[-1:]]
        with writing(f"checkpoint {final}", *kept):
            for log in (METRICS, ROLLOUTS):  # a run that continues reads back what led here
                if (self.folder / log).exists():
                    sync(self.folder / log)
            with folder_atomically(final) as temporary:
                engine.save(temporary)
                (temporary / STATE).write_text(json.dumps(state))
                write_manifest(temporary)
            point_best(self.folder, best_step)
            rotate(self.folder, self.train.keep, best_step)
