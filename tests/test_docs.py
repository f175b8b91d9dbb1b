import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["models", "algorithms"])
def test_the_tables_are_the_generated_ones(name: str) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    page = importlib.import_module("page")
    table = importlib.import_module(f"make_{name}_table").table()
    text = (ROOT / "docs" / f"{name}.md").read_text()
    assert page.rewritten(text, table) == text
