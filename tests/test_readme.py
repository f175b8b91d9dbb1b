"""The README's commands and snippets, as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# The quickstart at full size takes minutes; fewer steps run the same code.
SMALLER = {"dare quickstart": ["sft.train.steps=3", "rl.train.steps=2", "task.test_count=20"]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "configs").symlink_to(ROOT / "configs")
    return folder


def run(command: str, folder: Path, data: Path) -> str:
    words = command.replace("dare ", f"{Path(sys.executable).parent}/dare ", 1)
    environment = {**os.environ, "DATA": str(data)}
    done = subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_commands_run_as_written(workplace: Path, shared: Path) -> None:
    run(" ".join(["dare quickstart", *SMALLER["dare quickstart"]]), workplace, shared / "data")
    report = (workplace / "runs/quickstart/report.html").read_text()
    assert "after SFT" in report and "after RL" in report
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("dare ")]
    assert len(commands) >= 5
    for command in commands:
        run(command, workplace, shared / "data")


def test_make_targets_are_the_documented_ones() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("bash")), flags=re.MULTILINE):
        assert f"\n{target}: " in makefile


@pytest.mark.parametrize("snippet", blocks("python"))
def test_snippets_run(snippet: str, tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    done = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_example_learns() -> None:
    sys.path.insert(0, str(ROOT / "examples"))
    import rl_loop

    first, last = rl_loop.main()
    assert last > first + 0.2
