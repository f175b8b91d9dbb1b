"""``dare serve`` as a user runs it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dare.cli import main
from dare.serving.client import Client
from dare.serving.run import listen


def test_it_says_where_answers_and_stops_cleanly() -> None:
    command = [str(Path(sys.executable).parent / "dare"), "serve", "tiny:block", "port=0", "decoding.max_new_tokens=8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://\S+", lines[0])
        assert url and "tiny:block (tiny, attention block_causal, blocks of 8)" in lines[1]
        assert "max_new_tokens=8" in lines[2]
        answer = Client(url[0]).post("/v1/completions", {"prompt": "x", "model": "tiny:block"})
        assert answer["choices"][0]["finish_reason"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == "stopped\n"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("prot=1", "did you mean 'port'?"),
        ("port=70000", "setting port=70000"),
        ("decoding.max_new_tokens=5000", "fills the context of 4096"),
        ("decoding.cache=block", "does not fit a full-attention model"),
        ("host=no.such.host.invalid", "cannot listen on no.such.host.invalid:0"),
    ],
)
def test_a_mistake_is_one_line(
    override: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["dare", "serve", "tiny:masked", "port=0", override])
    with pytest.raises(SystemExit) as stop:
        main()
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2 and expected in line


def test_a_taken_port_and_a_missing_package_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with listen("127.0.0.1", 0) as taken:
        monkeypatch.setattr("sys.argv", ["dare", "serve", "tiny:masked", f"port={taken.getsockname()[1]}"])
        with pytest.raises(SystemExit):
            main()
    assert "set host or port" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit):
        main()
    assert "pip install" in capsys.readouterr().err
