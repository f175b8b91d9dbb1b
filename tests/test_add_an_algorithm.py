"""The steps of docs/add-an-algorithm.md, taken in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-an-algorithm.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def run(copy: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_file_one_entry_one_yaml_one_test(tmp_path: Path) -> None:
    for part in ("src", "configs", "tests", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module, entry, test = blocks("python")
    (tmp_path / "src/dare/algorithms/elbo_reinforce.py").write_text(module)
    registry = tmp_path / "src/dare/algorithms/registry.py"
    text, union = registry.read_text(), blocks("text")[0].strip()
    text = text.replace("from dare.algorithms.espo", f"{entry}from dare.algorithms.espo", 1)
    registry.write_text(re.sub(r",(\s+Field\(discriminator)", rf" {union},\1", text, count=1))
    (tmp_path / "configs/algorithm/elbo_reinforce.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "tests/algorithms/test_elbo_reinforce.py").write_text(test)
    cells = "tests/algorithms/test_matrix.py"
    found = run(
        tmp_path, "-m", "pytest", "-v", "tests/algorithms/test_elbo_reinforce.py", cells, "-k", "elbo_reinforce"
    )
    assert "5 passed" in found, found
    table = run(
        tmp_path, "-c", "import sys; sys.path.insert(0, 'docs'); import make_algorithms_table as t; print(t.table())"
    )
    assert "| `elbo_reinforce` | 2402.14740 | final text | ✓ | ✓ |" in table
