"""How decoding grows: time with live rows and passes, speed with rows, memory with the canvas. See ``decode.py``."""

import subprocess
import sys
from functools import partial

import torch
from load_memory import peak as peak_memory
from measure import ours, prompts, seconds_of, shaped, useful_gflop

from dare.models.packed import packed
from dare.models.transformer import Transformer

_ROWS, _PROMPT, _LENGTH = 16, 256, 256


def report(full: Transformer, causal: Transformer, quick: bool, peak: float, rounds: int) -> None:
    thresholds(quick, rounds)
    batches(full, "none", peak, rounds)
    batches(causal, "block", peak, rounds)
    print("\npeak memory, no cache", flush=True)
    subprocess.run([sys.executable, __file__, *(["--quick"] if quick else [])], check=True)


def thresholds(quick: bool, rounds: int) -> None:
    """Rows that are finished leave: time follows live rows times passes, whatever the threshold."""
    sharp, length = shaped("full", quick), 32
    sharp.unembed.weight.data *= 15  # random weights that are sometimes sure
    held, found = packed(sharp), []
    print("\nthreshold decoding, no cache: milliseconds per live row and pass")
    for rows in (4, 8):
        for threshold in (0.2, 0.5, 0.9):
            run = partial(ours, sharp, prompts(sharp, rows, length), length, block_size=8, threshold=threshold)
            seconds, rollouts = seconds_of(run, rounds)
            passes = rollouts.forwards_B
            found.append(1000 * seconds / int(passes.sum()))
            print(
                f"  {rows} rows  threshold {threshold:.1f}  {int(passes.min()):>3} to {int(passes.max()):>3} passes"
                f"  {seconds:6.2f} s  {found[-1]:6.2f} ms",
                flush=True,
            )
    print(f"  greatest over least: {max(found) / min(found):.2f}")
    del held


def batches(model: Transformer, cache: str, peak: float, rounds: int) -> None:
    """Double the rows until tokens per second grow by less than a twentieth.

    With the block cache the rows are samples of one prompt.
    """
    length, block, steps = 16, 4 if cache == "block" else 16, 4
    settings = {} if cache == "block" else {"block_size": block, "steps": steps}
    print(f"\nrows and speed, {cache} cache, 64+{length}")
    rows, best, speed = 1, 0.0, 1.0
    while speed > 1.05 * best and rows <= 256:
        texts = prompts(model, 1, 64).expand(rows, -1) if cache == "block" else prompts(model, rows, 64)
        best = max(best, speed)
        seconds, _ = seconds_of(partial(ours, model, texts, length, temperature=1.0, **settings), rounds)
        gflop = useful_gflop(model, cache, rows, 64, length, block, steps)
        speed = rows * length / seconds
        print(f"  {rows:>3} rows {speed:8.0f} tok/s  MFU {gflop / seconds / peak:.0%}", flush=True)
        rows *= 2


def memory(quick: bool) -> None:
    """Growth of this process over one decode, against logits of the whole canvas."""
    torch.set_num_threads(2)
    model = shaped("full", quick)
    small = prompts(model, 1, 8)
    ours(model, small, 8, steps=2)
    before = peak_memory()
    ours(model, prompts(model, _ROWS, _PROMPT), _LENGTH, block_size=_LENGTH // 2, steps=4, temperature=1.0)
    grown, whole = peak_memory() - before, 4 * _ROWS * (_PROMPT + _LENGTH) * model.spec.vocab_size
    weights = sum(weight.nbytes for weight in model.parameters())
    print(f"  {_ROWS} rows of {_PROMPT}+{_LENGTH}: {grown / 1e6:.0f} MB beyond the weights and their packed copies")
    print(f"  logits [B, T, V] alone would be {whole / 1e6:.0f} MB; the weights are {weights / 1e6:.0f} MB")


if __name__ == "__main__":
    memory("--quick" in sys.argv)
