"""Files that are either whole or absent."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write under a temporary name in the same folder, then rename: a reader or a kill never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
