"""Which checkpoint a run continues from, and what it is told when that cannot be."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from dare.errors import DareError
from dare.files import is_used
from dare.train.config import RunConfig
from dare.train.folder import CHECKPOINTS, CONFIG, checkpoint_path, checkpoints, set_aside, step_of
from dare.train.manifest import damage
from dare.train.saving import STATE


def choose_checkpoint(config: RunConfig) -> Path | None:
    """Return the complete checkpoint that ``config.resume`` asks for; None where the run begins at its first step.

    Raises ``DareError`` where ``output`` cannot be used so, or where the checkpoint is damaged: then it names the one
    before.
    """
    folder, found = config.output, checkpoints(config.output)
    if config.resume is False:
        if is_used(folder):
            raise DareError(f"output {str(folder)!r} is not empty; choose another or continue it with resume=true")
        return None
    if config.resume is True and not found:
        if (folder / CONFIG).is_file():
            return None  # it was stopped before its first save
        raise DareError(f"output {str(folder)!r} holds no checkpoint to resume; start with resume=false")
    chosen = found[-1] if config.resume is True else checkpoint_path(folder, config.resume)
    if chosen not in found:
        steps = ", ".join(str(step_of(one)) for one in found) or "none"
        raise DareError(f"resume={config.resume}: {str(folder)!r} has no checkpoint of that step; it has: {steps}")
    if reason := damage(chosen):
        raise DareError(f"checkpoint {chosen} is damaged: {reason}; {_offer(config, chosen, found)}")
    return chosen


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read what a checkpoint keeps besides the engine."""
    return json.loads((checkpoint / STATE).read_text())


def tidy(folder: Path, start: int) -> list[Path]:
    """Remove what a kill left half written, set later checkpoints aside and return where those are now."""
    for half in (folder / CHECKPOINTS).glob(".*"):
        shutil.rmtree(half)
    return set_aside(folder, start)


def resume_command(config: RunConfig, resume: object = "true") -> str:
    """The command that continues a run."""
    return f"dare {config.verb} {shlex.quote(str(config.output / CONFIG))} resume={resume}"


def _offer(config: RunConfig, broken: Path, found: list[Path]) -> str:
    whole = [one for one in found if step_of(one) < step_of(broken) and damage(one) is None]
    if not whole:
        return "no complete one is before it, start the run again in another folder"
    how = resume_command(config, step_of(whole[-1]))
    return f"{whole[-1].name} before it is complete, continue from there with: {how}"
