"""Files that are either whole or absent, also after a power cut."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from dare.errors import DareError


def is_used(path: Path) -> bool:
    """Tell whether writing a new folder at ``path`` would touch something: a file, or a folder that is not empty."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write under a temporary name in the same folder, then rename: a reader or a kill never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    sync(temporary)
    temporary.replace(path)


@contextmanager
def folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``; at the end put all of it on the disk, then rename it to ``path``.

    After an error nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # what a kill left behind
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for one in [*temporary.rglob("*"), temporary]:
            sync(one)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder; it loses its name at once, so that a kill leaves no half of it under that name."""
    nameless = path.with_name(f".{path.name}.{os.getpid()}.removed")
    path.replace(nameless)
    shutil.rmtree(nameless)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(what: str, *notes: str) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into a ``DareError`` that says ``what`` could not be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        fix = "free space or make the folder writable, then continue with resume=true"
        raise DareError("; ".join([f"{what} cannot be written ({_reason(error)})", *notes, fix])) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}"
    number = re.search(r"os error (\d+)", str(error))  # safetensors tells the number inside its text only
    return os.strerror(int(number[1])) if number else str(error)
