"""Write the table of docs/models.md from the tests; a tick is a test. Run: python docs/make_models_table.py"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
START, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
JOBS = {
    "load": ("test_family_goldens", "test_save_and_load_keep_every_byte"),
    "forward": ("test_family_goldens", "test_losses_and_gradient_norms"),
    "SFT": ("test_family_jobs", "test_sft"),
    "LoRA": ("test_family_jobs", "test_lora"),
    "RL": ("test_family_jobs", "test_rl"),
    "decode": ("test_family_jobs", "test_decode"),
    "cache": None,
    "export": ("test_family_jobs", "test_export"),
}
NAMES = {
    "llada": "LLaDA, LLaDA 1.5",
    "dream": "Dream, DiffuCoder",
    "sdar": "SDAR, TraDo",
    "sdar_moe": "SDAR-MoE",
    "llada20": "LLaDA2.0",
    "llada21": "LLaDA2.1",
}


def families_of(job: tuple[str, str] | None) -> set[str]:
    """The families a test is parametrised over."""
    if job is None:
        return set()
    test = getattr(importlib.import_module(job[0]), job[1])
    return {name for mark in test.pytestmark if mark.args[0] == "name" for name in mark.args[1]}


def table() -> str:
    """Return the table in Markdown."""
    sys.path.insert(0, str(ROOT / "tests" / "models"))
    done = {title: families_of(job) for title, job in JOBS.items()}
    lines = ["| family | " + " | ".join(JOBS) + " |", "|---" * (len(JOBS) + 1) + "|"]
    for name, title in NAMES.items():
        lines.append(f"| {title} | " + " | ".join("✓" if name in done[job] else "–" for job in JOBS) + " |")
    return "\n".join(lines) + "\n"


def rewritten(page: str) -> str:
    """Return the page with its table made anew."""
    before, _, rest = page.partition(START)
    return before + START + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    target = ROOT / "docs" / "models.md"
    target.write_text(rewritten(target.read_text()))
