"""Where a run folder keeps its checkpoints."""

from pathlib import Path

CHECKPOINTS = "checkpoints"


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a run folder, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step_*"))


def newest_checkpoint(path: str) -> str:
    """Return the newest checkpoint of a run folder, and any other ``path`` as it is."""
    found = checkpoints(Path(path))
    return str(found[-1]) if found else path
