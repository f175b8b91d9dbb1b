"""Pages with a generated part."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
START, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def rewritten(page: str, table: str) -> str:
    """Return the page with its generated part made anew."""
    before, _, rest = page.partition(START)
    return before + START + table + END + rest.partition(END)[2]


def rewrite(name: str, table: str) -> None:
    """Make the generated part of ``docs/NAME`` anew."""
    target = ROOT / "docs" / name
    target.write_text(rewritten(target.read_text(), table))
