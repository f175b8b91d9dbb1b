"""Write the tables of docs/algorithms.md from the algorithms and the tests of their cells.

Run: python docs/make_algorithms_table.py
"""

import re
import sys
from inspect import getdoc, getmodule

from page import ROOT, rewrite

from dare.algorithms.config import AlgorithmConfig

sys.path.insert(0, str(ROOT / "tests"))
from cells import ALGORITHMS, SUPPORTED

KINDS = {"full": "full attention", "block_causal": "block-causal"}
READS = {"text": "final text", "steps": "step of each token", "predictions": "predictions and reward of each step"}


def table() -> str:
    """Return both tables and the reasons of refusals in Markdown."""
    notes = _notes()
    cells = "\n".join(
        f"| `{name}` | {_source(kind)} | {READS[kind.records]} | {_mark(name, 'full', notes)} | "
        f"{_mark(name, 'block_causal', notes)} |"
        for name, kind in ALGORITHMS.items()
    )
    head = "| algorithm | arXiv | reads of a rollout | full attention | block-causal |\n|---|---|---|---|---|\n"
    reasons = "\n".join(f"{number}. {reason}" for reason, number in notes.items())
    return f"{head}{cells}\n\nRefused, with the reason the command prints:\n\n{reasons}\n\n{_defaults()}"


def _mark(name: str, kind: str, notes: dict[str, int]) -> str:
    return "✓" if (name, kind) in SUPPORTED else f"– ({notes[ALGORITHMS[name].refuses[kind]]})"


def _notes() -> dict[str, int]:
    reasons = [f for kind in ALGORITHMS.values() for f in kind.refuses.values()]
    return {reason: number for number, reason in enumerate(dict.fromkeys(reasons), start=1)}


def _source(kind: type[AlgorithmConfig]) -> str:
    found = re.search(r"arXiv (\d{4}\.\d{5})", getmodule(kind).__doc__ or getdoc(kind) or "")
    assert found, f"{kind.__name__} names no source"
    return found[1]


def _defaults() -> str:
    lines = ["| algorithm | group | updates | baseline | KL | clip |", "|---|---|---|---|---|---|"]
    for name, kind in ALGORITHMS.items():
        one = kind()
        baseline = "–" if "baseline" in kind.fixed else one.baseline
        where = {"loss": "in the loss", "reward": "off the reward"}[one.kl_in]
        anchor = "" if one.kl_to == "start" else ", to the behaviour policy"
        kl = f"{one.kl} {one.kl_coef:g} {where}{anchor}" if one.kl_coef else "–"
        clip = f"{one.clip_low:g} / {one.clip_high:g}" if hasattr(one, "clip_low") else "–"
        lines.append(f"| `{name}` | {one.group_size} | {one.updates} | {baseline} | {kl} | {clip} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    rewrite("algorithms.md", table())
