import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dare.errors import DareError
from dare.sandbox import bwrap as bubblewrap
from dare.sandbox.base import Limits, Outcome, Sandbox, open_sandbox
from dare.sandbox.bwrap import Bwrap
from dare.sandbox.remote import Remote
from dare.sandbox.seccomp import seccomp_filter
from dare.sandbox.testing import outputs_of, passed_tests
from dare.sandbox.unsafe import Unsafe

ANSWERS: list[Any] = []


class Server(BaseHTTPRequestHandler):
    """Runs what it is sent (by these tests), or answers what is next in ``ANSWERS``."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = ANSWERS.pop(0) if ANSWERS else json.dumps(self._run(asked))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def _run(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["language"] == "python" and asked["memory_limit_MB"] > 0
        command = [sys.executable, "-c", asked["code"]]
        try:
            done = subprocess.run(
                command, input=asked["stdin"].encode(), capture_output=True, timeout=asked["run_timeout"], check=False
            )
        except subprocess.TimeoutExpired:
            return {"status": "Failed", "message": "", "run_result": {"status": "TimeLimitExceeded", "stdout": ""}}
        result = {"status": "Finished", "return_code": done.returncode, "stdout": done.stdout.decode()}
        return {"status": "Failed" if done.returncode else "Success", "message": "", "run_result": result}

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Remote(f"http://127.0.0.1:{server.server_port}/run_code")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def unsafe() -> Unsafe:
    with pytest.warns(UserWarning, match="'unsafe': programs written by the model run with your rights"):
        return Unsafe()


@pytest.fixture(params=["bwrap", "remote", "unsafe"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


def test_a_program_runs(sandbox: Sandbox) -> None:
    done = sandbox.run("print(input())\nimport sys\nprint(sys.stdin.read())", stdin="héllo\nworld")
    assert (done.status, done.stdout) == ("ok", "héllo\nworld\n") and 0 < done.seconds < 9
    assert sandbox.run("raise SystemExit(3)").status == "error"
    assert sandbox.run("while True: pass", limits=Limits(seconds=0.5)).status == "timeout"
    long = sandbox.run("print('x' * 5000)", limits=Limits(output_bytes=1000))
    assert long.status == "output_limit" and long.stdout == "x" * 1000


def test_programs_are_judged(sandbox: Sandbox) -> None:
    tests = ["assert f(2) == 4", "assert f(3) == 9"]
    assert passed_tests(sandbox, ["def f(x): return x * x"], tests) == [True, True]
    assert passed_tests(sandbox, ["def f(x): return 4"], tests) == [True, False]
    assert outputs_of(sandbox, ["print(input())"], ["1", "2"], seconds=3, output_bytes=9, stop=True) == ["1\n", "2\n"]


def test_the_judge_cannot_be_read_even_without_a_sandbox(unsafe: Unsafe) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every process")
    thief = "def f(x):\n    import os\n    return open(f'/proc/{os.getppid()}/mem', 'rb').read(1)"
    tests = ["try:\n    f(1)\nexcept PermissionError:\n    pass\nelse:\n    assert False"]
    assert passed_tests(unsafe, [thief], tests) == [True]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("no JSON", "check that the server runs"),
        ("[1]", "a JSON object is expected"),
        ('{"status": "SandboxError", "message": "full"}', "failed: full"),
        ('{"status": "Success", "run_result": null}', "failed"),
    ],
)
def test_a_server_that_fails_is_named(answer: str, message: str, remote: Remote) -> None:
    ANSWERS.append(answer)
    with pytest.raises(DareError, match=message):
        remote.run("print(1)")


def test_a_server_cannot_answer_without_end(remote: Remote) -> None:
    ANSWERS.append("x" * 10**6)
    assert remote.run("print(1)", limits=Limits(output_bytes=1000)).status == "output_limit"


def test_a_judge_that_never_started_is_no_verdict(remote: Remote) -> None:
    ANSWERS.append('{"status": "Failed", "run_result": {"status": "Finished", "return_code": 1, "stdout": ""}}')
    with pytest.raises(DareError, match="failed before the program was started"):
        passed_tests(remote, ["def f(): pass"], ["f()"])


def test_a_verdict_cut_short_is_none(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "SECRET")
    for written in ("\nSECRET\n", "\nSECRET\nSECRET[true", "\nSECRET\nSECRET[true]"):
        result = {"status": "TimeLimitExceeded", "stdout": written}
        ANSWERS.append(json.dumps({"status": "Failed", "run_result": result}))
        assert passed_tests(remote, ["def f(): pass"], ["f()"]) == [False]


def test_only_python_itself_is_seen_of_the_folder_it_lies_in() -> None:
    if Path(sys.base_prefix).is_relative_to("/usr"):
        pytest.skip("this Python lies in /usr, which the sandbox sees whole")
    mounted = bubblewrap._mounts()
    assert str(Path(sys.base_prefix, "lib")) in mounted and sys.base_prefix not in mounted


def test_a_kernel_on_which_programs_cannot_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bwrap, "run", lambda *_: Outcome("error", "", 0.1))
    with pytest.raises(DareError, match=r"could not fork in bubblewrap, which needs Linux 5\.14"):
        Bwrap()


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(DareError, match="check that the server runs"):
        Remote("http://127.0.0.1:9/run_code").run("print(1)")
    with pytest.raises(DareError, match="must start with http"):
        Remote("file:///etc/passwd")


def test_the_choice_of_a_back_end() -> None:
    with pytest.raises(DareError, match="'bwarp', which does not exist; did you mean 'bwrap'"):
        open_sandbox("bwarp")
    with pytest.raises(DareError, match="give a url with 'remote'"):
        open_sandbox("remote")
    with pytest.raises(DareError, match="greater than 0"):
        Limits(seconds=0)


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: None)
    with pytest.raises(DareError, match="missing: apt install bubblewrap"):
        Bwrap()


def test_an_old_bubblewrap_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    old = _executable(tmp_path / "bwrap", "echo bubblewrap 0.6.1")
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: old)
    with pytest.raises(DareError, match=r"bubblewrap 0\.6\.1; version 0\.8 or later"):
        Bwrap()


@pytest.mark.usefixtures("bwrap")
def test_refused_namespaces_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    refusing = _executable(
        tmp_path / "bwrap",
        "[ $1 = --version ] && echo bubblewrap 0.8.0 && exit; "
        "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1",
    )
    which = bubblewrap.shutil.which
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda name: refusing if name == "bwrap" else which(name))
    with pytest.raises(DareError, match=r"uid map: Permission denied; bubblewrap needs user namespaces, see `unshare"):
        Bwrap()


def _executable(path: Any, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    path.parent.chmod(0o755)
    return str(path)


def test_the_filter() -> None:
    assert len(seccomp_filter("x86_64")) == len(seccomp_filter("aarch64"))
    assert len(seccomp_filter("x86_64")) < 4096  # one write to a pipe
    with pytest.raises(DareError, match="'riscv64'; use backend 'remote'"):
        seccomp_filter("riscv64")
