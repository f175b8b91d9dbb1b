"""Bubblewrap: namespaces, a file system of nothing but Python, no network, a system call filter.

Started by root, it first becomes an unprivileged user: a sandbox that is root outside escapes the process limit.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dare.errors import DareError
from dare.sandbox.base import DEFAULT_LIMITS, MB, Limits, Outcome
from dare.sandbox.process import python_command, supervise
from dare.sandbox.seccomp import seccomp_filter

OLDEST = (0, 8)
NOBODY = "65534"
_TRIAL = """
import os
if os.fork():  # before Linux 5.14 the process limit counts all of the user's processes
    raise SystemExit(os.wait()[1])
print("works")
"""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}  # all that process 1 of the sandbox can be asked for


class Bwrap:
    """``DareError`` on opening: bubblewrap is missing, too old, or not allowed to work on this machine."""

    def __init__(self) -> None:
        self._bwrap = _found()
        self._filter = seccomp_filter()
        self._python = _interpreter()
        self._become = _unprivileged(self._bwrap) if os.geteuid() == 0 else []
        self._mounts = _mounts()
        try:
            works = self.run(_TRIAL).stdout == "works\n"
        except DareError as error:
            raise DareError(f"{error}; {_advice()}") from error
        if not works:
            raise DareError(f"a program could not fork in bubblewrap, which needs Linux 5.14; {_advice()}")

    def run(self, program: str, *, stdin: str = "", limits: Limits = DEFAULT_LIMITS) -> Outcome:
        """Run ``program`` in namespaces of its own, which end with it."""
        source = program.encode("utf-8", "replace")
        (rules, to_rules), (told, to_told) = os.pipe(), os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(to_rules, self._filter)
            os.close(to_rules)
            start = python_command(self._python, source, limits.resources())
            command = [*self._become, *self._sandbox(limits, rules), *start]
            command[(at := command.index(self._bwrap) + 1) : at] = ["--info-fd", str(to_told)]  # of the outermost
            data = source + stdin.encode("utf-8", "replace")
            return supervise(
                command, data, limits, environment=_ENVIRONMENT, folder="/", files=(rules, to_told), told=told
            )
        finally:
            for end in (rules, told, to_told):
                os.close(end)

    def _sandbox(self, limits: Limits, seccomp: int) -> list[str]:
        return [
            *(self._bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1"),
            *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", NOBODY, "--gid", NOBODY),
            *("--hostname", "sandbox", "--clearenv", "--setenv", "HOME", "/tmp", "--seccomp", str(seccomp)),
            *self._mounts,
            *("--size", str(limits.disk_mb * MB), "--tmpfs", "/tmp", "--chdir", "/tmp"),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--"),
        ]


def _found() -> str:
    if sys.platform != "linux":
        raise DareError(f"sandbox backend 'bwrap' needs Linux, not {sys.platform}; use backend 'remote'")
    path = shutil.which("bwrap")
    if path is None:
        raise DareError("sandbox backend 'bwrap' needs bubblewrap, which is missing: apt install bubblewrap")
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"(\d+)\.(\d+)", told)
    if number is None or (int(number[1]), int(number[2])) < OLDEST:
        raise DareError(f"{path} is {told.strip() or 'broken'}; version 0.8 or later is needed: apt install bubblewrap")
    return path


def _interpreter() -> str:
    """The real interpreter behind a virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(sys.base_prefix, "bin", name)
    return str(path if path.exists() else Path(sys.executable).resolve())


def _mounts() -> list[str]:
    """System libraries and the interpreter, read-only. No ``/proc``: programs need none and it tells too much."""
    mounts = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for path in sorted(Path("/").glob("lib*")):
        mounts += (
            ["--symlink", str(path.readlink()), str(path)] if path.is_symlink() else ["--ro-bind", *[str(path)] * 2]
        )
    if not Path(sys.base_prefix).is_relative_to("/usr"):  # no more of it than Python: it may be the user's own folder
        folders = [str(Path(sys.base_prefix, name)) for name in ("bin", "lib", "lib64")]
        mounts += [word for folder in folders for word in ("--ro-bind-try", folder, folder)]
    return [*mounts, "--dev", "/dev"]


def _unprivileged(bwrap: str) -> list[str]:
    """The start of a command that runs the rest as nobody, who must be able to reach the interpreter.

    To open a way to it takes a bubblewrap of root's, which may not signal a process of nobody. What it starts dies with
    it all the same, because the kernel ends a process namespace with its first process.
    """
    if shutil.which("setpriv") is None:
        raise DareError(
            "sandbox backend 'bwrap' started by root needs setpriv, which is missing: apt install util-linux"
        )
    become = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]
    above = [folder for folder in reversed(Path(sys.base_prefix).parents) if folder != Path("/")]
    closed = [place for place, folder in enumerate(above) if not folder.stat().st_mode & 0o001]
    if not closed:
        return become
    hidden, *inner = above[closed[0] :]
    folders = [word for folder in inner for word in ("--dir", str(folder))]
    open_way = ["--tmpfs", str(hidden), *folders, "--ro-bind", sys.base_prefix, sys.base_prefix]
    return [bwrap, "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", *open_way, "--", *become]


def _advice() -> str:
    return (
        "bubblewrap needs user namespaces, see `unshare --user true`. If that is refused: "
        "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), "
        "`sysctl -w kernel.unprivileged_userns_clone=1` (Debian), `sysctl -w user.max_user_namespaces=10000`; "
        "in Docker start with --security-opt seccomp=unconfined --security-opt apparmor=unconfined; "
        "or use backend 'remote'"
    )
