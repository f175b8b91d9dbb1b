"""What a complete checkpoint consists of: every file with its size and SHA-256."""

import hashlib
import json
from pathlib import Path

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """List the files of a folder, which is complete."""
    files = {str(path.relative_to(folder)): _describe(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n")


def damage(folder: Path) -> str | None:
    """Compare a folder with its manifest; return what is wrong with the first file that differs, None for nothing."""
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError):
        return f"{MANIFEST} is missing or broken"
    found = ((name, _difference(folder / name, expected)) for name, expected in files.items())
    return next((f"{name} {difference}" for name, difference in found if difference), None)


def _difference(path: Path, expected: dict[str, int | str]) -> str | None:
    try:
        if (size := path.stat().st_size) != expected["bytes"]:
            return f"has {size} bytes instead of {expected['bytes']}"
        return None if _describe(path) == expected else "has another SHA-256 than it was written with"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _describe(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
