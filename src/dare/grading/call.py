"""One call of a reward: what is asked, what comes back, and how it is carried out."""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dare.errors import DareError
from dare.grading.interface import interface_of
from dare.grading.locate import locate
from dare.grading.reading import plain


@dataclass(frozen=True)
class Request:
    """Call ``where``, a function or the place of one (see ``locate``), on ``subject``, a completion or a list of them.

    ``subject`` None asks for its interface. ``seconds`` it may take.
    """

    where: str | Callable[..., Any]
    seconds: float
    subject: str | list[str] | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """``found`` is what the function gave, made ``plain``; or ``failure`` tells why it gave nothing.

    ``stopped`` where its process was killed or ended.
    """

    found: Any = None
    failure: str | None = None
    seconds: float = 0.0
    stopped: bool = False


def answer(request: Request) -> Reply:
    """Carry a request out; whatever is raised, but for ``KeyboardInterrupt``, becomes a failure."""
    began = time.perf_counter()
    try:
        found = _found(request)
        return Reply(found, seconds=time.perf_counter() - began)
    except DareError as error:
        failure = str(error)
    except (Exception, SystemExit) as error:
        failure = f"it raised {_summary(error)}"
    return Reply(failure=failure, seconds=time.perf_counter() - began)


def called(function: Callable[..., Any], subject: str | list[str], arguments: Mapping[str, Any]) -> Any:
    """Call a reward and return its value, or one per completion of a list, made ``plain``."""
    value = function(subject, **arguments)
    if isinstance(subject, str):
        return plain(value)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        raise DareError(
            f"it gave {plain(value)} for {len(subject)} completions; a list with one value each is expected"
        )
    if len(value) != len(subject):
        raise DareError(f"it gave {len(value)} values for {len(subject)} completions; one each is expected")
    return [plain(one) for one in value]


def _found(request: Request) -> Any:
    function = locate(request.where) if isinstance(request.where, str) else request.where
    if request.subject is None:
        return interface_of(function).as_dict()
    return called(function, request.subject, request.arguments or {})


def _summary(error: BaseException) -> str:
    """The kind, the message and the place of an error, in one line."""
    try:
        text = " ".join(str(error).split())[:200]
    except Exception:
        text = ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
