"""What every back end takes and returns, and how one is chosen."""

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Literal, Protocol

from dare.errors import DareError, nearest

MB = 1 << 20

BACK_ENDS = MappingProxyType(
    {
        "bwrap": "dare.sandbox.bwrap:Bwrap",
        "remote": "dare.sandbox.remote:Remote",
        "unsafe": "dare.sandbox.unsafe:Unsafe",
    }
)
"""Name -> the module and the class in it."""

Status = Literal["ok", "error", "timeout", "output_limit"]


@dataclass(frozen=True)
class Limits:
    """What one program may use. Its memory is bounded by ``processes`` times ``memory_mb``, plus ``disk_mb``.

    ``seconds`` is wall time, and of each process also CPU time; ``memory_mb`` address space per process;
    ``processes`` counts threads and the process that judges; ``file_mb`` is one file, ``disk_mb`` the whole work
    area, which lies in memory; ``output_bytes`` is standard output, past which the program is stopped.
    """

    seconds: float = 10.0
    memory_mb: int = 512
    processes: int = 8
    file_mb: int = 16
    disk_mb: int = 32
    open_files: int = 64
    output_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise DareError(f"sandbox limit {name} is {value!r}; it must be greater than 0")

    def resources(self) -> dict[str, int]:
        """Return the limits the kernel keeps per process, by their names in ``resource``, in bytes and seconds."""
        return {
            "RLIMIT_AS": self.memory_mb * MB,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(self.seconds) + 1,
            "RLIMIT_FSIZE": self.file_mb * MB,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.processes,
        }


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Outcome:
    """How a program ended, the start of its standard output (bad bytes replaced) and the wall time in seconds.

    ``ok`` is exit status 0, which any program can choose to return: it says nothing about being right.
    """

    status: Status
    stdout: str
    seconds: float


class Sandbox(Protocol):
    """A place to run a Python program."""

    def run(self, program: str, *, stdin: str = "", limits: Limits = DEFAULT_LIMITS) -> Outcome:
        """Run ``program`` to its end or its limits. Whatever it does is an ``Outcome``.

        ``DareError``: the sandbox itself failed.
        """
        ...


@lru_cache
def open_sandbox(name: str, url: str | None = None) -> Sandbox:
    """Return the back end called ``name``, opened once per process; ``url`` is for ``remote``.

    A back end that is missing or cannot work here raises ``DareError``. None is ever replaced by another.
    """
    if name not in BACK_ENDS:
        raise DareError(f"sandbox backend is {name!r}, which does not exist; {nearest(name, BACK_ENDS)}")
    if (url is not None) != (name == "remote"):
        raise DareError(f"sandbox backend {name!r} with url {url!r}; give a url with 'remote', and only then")
    module, _, kind = BACK_ENDS[name].partition(":")
    made = getattr(import_module(module), kind)
    return made(url) if url is not None else made()
