"""Files that are either whole or absent."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_used(path: Path) -> bool:
    """Tell whether writing a new folder at ``path`` would touch something: a file, or a folder that is not empty."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write under a temporary name in the same folder, then rename: a reader or a kill never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)


@contextmanager
def folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path`` and rename it to ``path`` at the end; after an error nothing is left of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # what a kill left behind
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        shutil.rmtree(temporary)
        raise
