import importlib
import sys
from pathlib import Path

import pytest

from dare.rewards.registry import DEFAULT_REWARD, LEARNED, REWARDS
from dare.types import Example
from graders import grade

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["models", "algorithms"])
def test_the_tables_are_the_generated_ones(name: str) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    page = importlib.import_module("page")
    table = importlib.import_module(f"make_{name}_table").table()
    text = (ROOT / "docs" / f"{name}.md").read_text()
    assert page.rewritten(text, table) == text


def test_every_reward_and_default_is_explained() -> None:
    text = (ROOT / "docs" / "rewards.md").read_text()
    for name in {**REWARDS, **LEARNED, **DEFAULT_REWARD}:
        assert f"`{name}`" in text, name


def test_the_reward_in_five_lines_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rewards.md").read_text()
    code = page.partition("```python\n# rewards.py\n")[2].partition("```")[0]
    assert len(code.splitlines()) <= 5
    (tmp_path / "rewards.py").write_text(code)
    row = Example((), {"ground_truth": "42"})
    found = grade(["42", "41"], [row] * 2, {f"{tmp_path}/rewards.py:brief": {"longest": 1, "weight": 2.0}})
    assert [one.total for one in found] == [2.0, 0.0]
