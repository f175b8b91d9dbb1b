"""Rollout files: one trace per line of JSON."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from dare.errors import DareError
from dare.files import write_atomically
from dare.traces.trace import Trace

ROLLOUTS = "rollouts.jsonl"


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Write a new file."""
    write_atomically(path, "".join(_line(trace) for trace in traces))


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Add lines to a file, which need not exist."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(_line(trace) for trace in traces)


def read_traces(path: Path) -> list[Trace]:
    """Read a file, or the ``rollouts.jsonl`` of a folder; raises ``DareError`` that names the line."""
    file = path / ROLLOUTS if path.is_dir() else path
    try:
        *lines, rest = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DareError(f"rollout file {str(file)!r} cannot be read ({reason}); give a {ROLLOUTS}") from error
    # a process that was killed may leave half a last line
    whole = [*lines, *([rest] if rest.endswith("}") else [])]
    return [_parse(line, f"{file}:{number}") for number, line in enumerate(whole, 1) if line.strip()]


def check_target(path: Path | None, option: str, suffix: str) -> None:
    """Make the folder of a file that is to be written; raise ``DareError`` where that cannot work."""
    if path is None:
        return
    if path.suffix != suffix or path.is_dir():
        raise DareError(f"{option} {str(path)!r}: give the name of a {suffix} file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DareError(f"{option} {str(path)!r} cannot be written ({error.strerror}); give another folder") from error


def _line(trace: Trace) -> str:
    return trace.model_dump_json(exclude_defaults=True) + "\n"


def _parse(line: str, place: str) -> Trace:
    try:
        return Trace.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the line"
        raise DareError(f"{place} is no saved rollout ({where}: {first['msg']}); give a {ROLLOUTS}") from error
