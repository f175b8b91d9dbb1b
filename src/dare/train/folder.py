"""Where a run folder keeps its checkpoints, which of them is the best, and whether a process is training in it."""

import fcntl
import re
from pathlib import Path
from typing import IO

from dare.errors import DareError
from dare.files import remove_folder, writing

CONFIG, CHECKPOINTS, BEST, _LOCK = "config.yaml", "checkpoints", "best", "run.lock"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / CHECKPOINTS / f"step_{step:06d}"


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint was written after."""
    return int(checkpoint.name.removeprefix("step_"))


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a run folder, oldest first."""
    found = (folder / CHECKPOINTS).glob("step_*")
    return sorted((path for path in found if re.fullmatch(r"step_\d+", path.name)), key=step_of)


def newest_checkpoint(path: str) -> str:
    """Return the newest checkpoint of a run folder, what its ``best`` stands for, and another ``path`` as it is."""
    folder = Path(path)
    if folder.name == BEST and folder.is_symlink():
        return str(folder.parent / folder.readlink())
    found = checkpoints(folder)
    return str(found[-1]) if found else path


def point_best(folder: Path, step: int | None) -> None:
    """Let ``best`` stand for the checkpoint of ``step`` (None: for none)."""
    link, fresh = folder / BEST, folder / f".{BEST}"
    if step is None:
        link.unlink(missing_ok=True)
        return
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(checkpoint_path(Path(), step))
    fresh.replace(link)


def rotate(folder: Path, keep: int, best: int | None) -> None:
    """Remove all checkpoints but the ``keep`` newest and that of step ``best``."""
    for old in checkpoints(folder)[:-keep]:
        if step_of(old) != best:
            remove_folder(old)


def set_aside(folder: Path, step: int) -> list[Path]:
    """Rename checkpoints later than ``step``, so that nothing takes them for the newest; return their new names."""
    aside = []
    for late in checkpoints(folder):
        if step_of(late) > step:
            place = late.with_name(f"aside_{late.name}")
            if place.exists():
                remove_folder(place)
            aside.append(late.replace(place))
    return aside


def hold(folder: Path) -> IO[str]:
    """Make a run folder this process's alone, until the file is closed or the process ends, however it ends.

    Raises ``DareError`` where another process holds it.
    """
    with writing(f"run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("a")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise DareError(
            f"another process is training in {str(folder)!r}; wait for it, stop it or choose another output"
        ) from error
    except OSError:
        pass  # a file system without locks: nothing can be known
    return file


def is_running(folder: Path) -> bool:
    """Tell whether another process holds a run folder."""
    try:
        with (folder / _LOCK).open() as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        pass
    return False
