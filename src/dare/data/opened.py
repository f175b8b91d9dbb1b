"""From a source's name to its rows."""

import glob
from collections.abc import Collection
from pathlib import Path

from dare.data.config import Split, TaskConfig
from dare.data.hub import PREFIX, open_hub, open_saved
from dare.data.span import is_word, split_slice
from dare.data.tables import KINDS, Chain, FileTable, Table, cut
from dare.errors import DareError, nearest


def embedded(name: str, task: TaskConfig, split: Split, known: Collection[str], kind: str) -> bool:
    """Tell an embedded ``kind`` from a file or dataset; a plain word that is neither raises ``DareError``."""
    if not is_word(name) or name in known:
        return name in known
    if (task.root / name).is_dir():
        raise DareError(f"task.{split}={name!r} is a folder; write ./{name} for a dataset saved there")
    raise DareError(
        f"task.{split}={name!r} is no embedded {kind} ({nearest(name, known)}) and no {KINDS} file, "
        "nor a folder with a slash in its name or hf:NAME"
    )


def open_source(name: str, task: TaskConfig, split: Split, stream: bool = False) -> Table:
    """Open a file, a glob, a saved dataset or one of the hub, and take its slice and at most ``task``'s count."""
    where, span = split_slice(name)
    return cut(open_place(where, task.root, split, stream), span, task.limit(split))


def open_sources(names: list[str], task: TaskConfig, split: Split, stream: bool = False) -> Table:
    """Open several sources as one; streamed ones of the hub must come alone, since a place among them is not known."""
    if stream and len(names) > 1 and any(name.startswith(PREFIX) for name in names):
        raise DareError(
            f"task.stream cannot find its place again in {', '.join(names)} read as one; mix them with weights instead"
        )
    tables = [open_source(name, task, split, stream) for name in names]
    return tables[0] if len(tables) == 1 else Chain(tables)


def open_place(where: str, root: Path, split: Split, stream: bool) -> Table:
    """Open a source that has no slice."""
    if where.startswith(PREFIX):
        return open_hub(where, split, stream)
    path = root / where
    if glob.has_magic(where) and not path.exists():
        files = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not files:
            raise DareError(f"{path} matches no file; correct the pattern or task.root")
        return Chain([FileTable(Path(file)) for file in files])
    if path.is_dir() or not path.suffix:
        return open_saved(path, split)
    return FileTable(path)
