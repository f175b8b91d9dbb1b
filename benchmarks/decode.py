"""Decoding speed against plain versions of the published samplers (``plain.py``), in one process and in turns.

Run: python benchmarks/decode.py [--quick]. Random weights, float32, 2 threads; a warm-up, then the median of five
rounds, a ratio being taken within its round. ``MFU``: useful FLOPs (``measure.useful_gflop``) per second over the best
square product of matrices.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import plain
import scaling
import torch
from measure import Timed, clock, interleave, ours, peak_gflops, prompts, shaped, useful_gflop

from dare.models.packed import packed

ROUNDS, BLOCK = 5, 32


@dataclass(frozen=True)
class Case:
    """``plain`` is timed once and counts ``scale`` times; ``exact``: both must give the same ids."""

    name: str
    target: float
    gflop: float
    ours: Callable[[], Any]
    plain: Callable[[], Any]
    scale: int = 1
    exact: bool = True


def uncached(model: Any, prompt: int, length: int, temperature: float) -> Case:
    """Two blocks of two steps, so that every size takes as many passes."""
    four_BP, block = prompts(model, 4, prompt), length // 2
    return Case(
        f"no cache, temperature {temperature:g}, 4 rows",
        1.9 if temperature else 1.3,
        useful_gflop(model, "none", 4, prompt, length, block, 2),
        lambda: ours(model, four_BP, length, block_size=block, steps=4, temperature=temperature),
        lambda: plain.masked(model, four_BP, length, block, 4, temperature),
        exact=not temperature,
    )


def dual(model: Any, prompt: int, length: int, steps: int, against: str) -> Case:
    four_BP, total, loop = prompts(model, 4, prompt), steps * length // BLOCK, against == "its loop"
    return Case(
        f"dual cache, 4 rows, to {against}",
        2.0 if loop else 2.3,
        useful_gflop(model, "dual", 4, prompt, length, BLOCK, steps),
        lambda: ours(model, four_BP, length, block_size=BLOCK, steps=total, cache="dual"),
        lambda: (
            torch.cat([plain.dual_cached(model, row_P, length, BLOCK, total) for row_P in four_BP])
            if loop
            else plain.masked(model, four_BP, length, BLOCK, total, 0.0)
        ),
        exact=loop,
    )


def block(model: Any, prompt: int, length: int, group: int) -> Case:
    """Plain runs of one prompt are alike in all but their draws: ``group`` of them take ``group`` times as long."""
    one_BP, alone = prompts(model, 1, prompt), group == 1
    settings = {} if alone else {"temperature": 1.0, "rule": "maskgit_plus"}
    return Case(
        "block cache, 1 row" if alone else f"block cache, {group} samples, to {group} runs",
        2.0 if alone else 10.0,
        useful_gflop(model, "block", group, prompt, length, 4, 4),
        lambda: ours(model, one_BP.expand(group, -1), length, **settings),
        lambda: plain.block_cached(model, one_BP[0], length, 4, 0.0 if alone else 1.0),
        scale=group,
        exact=alone,
    )


def line(case: Case, size: str, timed: Timed, peak: float) -> str:
    rollouts, theirs = timed.results
    ratios = [case.scale * ratio for ratio in timed.ratios]
    ratio = ratios[len(ratios) // 2]
    cells = [
        f"{timed.ours:.2f}",
        f"{case.scale * timed.theirs:.2f}",
        f"{ratio:.2f}",
        f"{ratios[0]:.1f}-{ratios[-1]:.1f}",
        f"{case.target:.1f} {'+' if ratio >= case.target else '-'}",
        f"{int(rollouts.seqs.response_BT.sum()) / timed.ours:.0f}",
        str(int(rollouts.forwards_B.max())),
        f"{case.gflop / timed.ours / peak:.0%}",
        f"{case.gflop / case.scale / timed.theirs / peak:.0%}",
        ("yes" if torch.equal(rollouts.seqs.ids_BT, theirs) else "NO") if case.exact else "",
    ]
    return f"{case.name:<36}{size:>8}" + "".join(f"{cell:>10}" for cell in cells)


def main(quick: bool) -> None:
    """While a packed copy is held, decoding calls share it, as those of a server or of one rollout phase do."""
    torch.set_num_threads(2)
    rounds = 1 if quick else ROUNDS
    full, causal = shaped("full", quick), shaped("block", quick)
    sizes = [(16, 32)] if quick else [(64, 64), (256, 64), (64, 256), (256, 256)]
    ends = [sizes[0], sizes[-1]] if not quick else sizes
    cases = [
        *((s, uncached(full, *s, 0.0)) for s in sizes),
        *((s, uncached(full, *s, 1.0)) for s in sizes[:2]),
        *((s, dual(full, *s, 4, "its loop")) for s in ends),
        *((s, dual(full, *s, 4, "no cache")) for s in sizes[:1]),
        *((s, block(causal, *s, 1)) for s in (*sizes[:2], *ends[1:])),
        *((s, block(causal, *s, 8)) for s in sizes[:2]),
    ]
    peak = peak_gflops(quick)
    print(f"peak before {peak:.0f} GFLOP/s, {torch.get_num_threads()} threads, median of {rounds}")
    seconds, held = clock(lambda: (packed(full), packed(causal)))
    print(f"packing both models takes {1000 * seconds:.0f} ms, once\n")
    names = ("ours s", "plain s", "ratio", "range", "target", "tok/s", "passes", "MFU", "plain MFU", "same ids")
    print(f"{'':<36}{'size':>8}" + "".join(f"{name:>10}" for name in names))
    for (prompt, length), case in cases:
        timed = interleave(case.ours, case.plain, rounds)
        peak = max(peak, peak_gflops(quick))  # another process may have held the first one down
        print(line(case, f"{prompt}+{length}", timed, peak), flush=True)
    scaling.report(full, causal, quick, peak, min(rounds, 3))
    print(f"\npeak after {peak_gflops(quick):.0f} GFLOP/s")
    del held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small models, one round: does it run at all?")
    main(parser.parse_args().quick)
