import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_models_table_is_the_generated_one() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    import make_models_table

    page = (ROOT / "docs" / "models.md").read_text()
    assert make_models_table.rewritten(page) == page
