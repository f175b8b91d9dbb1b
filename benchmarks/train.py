"""A training step against a plain one (``plain_train.py``), in one process and in turns.

Run: python benchmarks/train.py [--quick] [CASE ...]. Random weights in LLaDA's and SDAR's shape, float32, 2 threads; a
warm-up, then the median of five rounds, a ratio being taken within its round. ``memory`` is what a step takes beyond
weights, gradients and moments, measured in a process of its own. ``MFU``: useful FLOPs (``useful_gflop``) per second
over those of square products of matrices, run in a row before each step; medians of both.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from load_memory import peak as peak_memory
from measure import Timed, interleave, seconds_of, sustained_gflops, transformer
from plain_train import Plain
from torch import Tensor

from dare.algorithms.sft import NegativeElbo
from dare.batch import Batch
from dare.diffusion.noise import key, uniform
from dare.diffusion.views import ViewSampler, block_rate, random_rate, stack_views
from dare.diffusion.vocabulary import linear_logp
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.models.checkpoint import Checkpoint
from dare.models.layout import Layout
from dare.models.transformer import Transformer
from dare.types import pack

ROUNDS = 5
LOSS = "the loss alone, vocabulary of 126k"


@dataclass(frozen=True)
class Case:
    """``shape``: (hidden, layers, MLP, vocabulary, block); ``lengths`` of the rows; ``answer`` share of each; the plain
    ``layout``; ``target`` ratio of speed, and share of the plain step's memory; ``compile`` ours, or not.
    """

    shape: tuple[int, int, int, int, int | None]
    lengths: list[int]
    target: float
    layout: str = "padded"
    answer: float = 0.6
    memory: float | None = None
    compile: bool = False


def gsm8k(rows: int) -> list[int]:
    """Lengths spread as those of GSM8K: log-normal, 64 % of a padded batch of 8 is text."""
    normal = torch.special.ndtri(uniform(key("lengths", torch.arange(rows)), 1)[:, 0])
    return (190 * (0.35 * normal).exp()).long().clamp(60, 500).tolist()


CASES = {
    "vocabulary of 126k": Case((384, 6, 1024, 126_464, None), [256] * 8, 1.35, memory=0.55),
    "vocabulary of 8k": Case((576, 12, 1536, 8192, None), [256] * 8, 1.05),
    "vocabulary of 8k, engine.compile": Case((576, 12, 1536, 8192, None), [256] * 8, 1.05, compile=True),
    "GSM8K lengths, packed": Case((576, 12, 1536, 8192, None), gsm8k(16), 1.7),
    "pair, to a row per block of 4": Case((512, 6, 1408, 8192, 4), [256] * 2, 12.0, "per_block"),
    "pair, to a row per block of 32": Case((512, 6, 1408, 8192, 32), [256] * 4, 1.7, "per_block"),
    "pair, to a dense mask, block 4": Case((512, 6, 1408, 8192, 4), [512] * 4, 1.1, "dense"),
    "pair, to a dense mask, block 32": Case((512, 6, 1408, 8192, 32), [512] * 4, 1.1, "dense"),
}


def batch_of(case: Case, model: Transformer, views: ViewSampler | None = None) -> Batch:
    """Rows of random words, and their noise."""
    generator = torch.Generator().manual_seed(0)
    words = model.spec.vocab_size - 3
    rows = [torch.randint(words, (length,), generator=generator).tolist() for length in case.lengths]
    seqs = pack(rows, [round(length * (1 - case.answer)) for length in case.lengths], model.spec.pad_id)
    size = model.spec.block_size
    views = views or (random_rate if size is None else partial(block_rate, block_size=size))
    return Batch(seqs, views(seqs, key("noise", torch.arange(len(rows)))), seqs.response_BT)


def repeated(count: int) -> ViewSampler:
    """``count`` views of each row, each a mask of its own."""

    def sample(seqs, key_B):
        views = [random_rate(seqs, key(key_B, number)) for number in range(count)]
        return stack_views([(v.masked_BKT[:, 0], v.weight_BKT[:, 0] / count, v.rate_BKT[:, 0]) for v in views])

    return sample


def steps(case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    """One step of ours and one plain one, each on a model of its own."""
    ours, plain = engine_of(case), Plain(transformer(*case.shape), case.layout)
    batch = batch_of(case, ours.model)
    return partial(ours.update, batch, NegativeElbo()), partial(plain.update, batch)


def engine_of(case: Case, **settings) -> LocalEngine:
    config = EngineConfig(micro_batch=len(case.lengths), compile=case.compile, **settings)
    return LocalEngine(Checkpoint(transformer(*case.shape), {}, None), config, OptimConfig(), total_updates=100)


def useful_gflop(case: Case, model: Transformer, batch: Batch) -> float:
    """The arithmetic of one step, in units of 1e9 operations: three times that of a pass over the text alone.

    A product of weights counts 2 per number and token, the vocabulary 2 per number and scored token, attention 4 per
    pair of tokens that see each other, head and feature.
    """
    body = sum(weight.numel() for weight in model.blocks.parameters() if weight.dim() > 1)
    tokens, pairs = sum(case.lengths), sum(length**2 for length in case.lengths)
    pair, entry = 4 * model.arch.layers * model.arch.heads * model.arch.head_size, 2 * model.embed.weight.numel()
    return 3e-9 * (2 * body * tokens + pair * pairs + entry * int(batch.views.scored_BKT.sum()))


def line(name: str, case: Case, timed: Timed, roof: float, memory: tuple[float, float]) -> str:
    ratio, model = timed.ratios[len(timed.ratios) // 2], transformer(*case.shape)
    gflop = useful_gflop(case, model, batch_of(case, model)) if case.layout == "padded" else 0.0
    share = memory[0] / memory[1]
    cells = [
        f"{timed.ours:.2f}",
        f"{timed.theirs:.2f}",
        f"{ratio:.2f}",
        f"{timed.ratios[0]:.1f}-{timed.ratios[-1]:.1f}",
        f"{case.target:.2f} {'+' if ratio >= case.target else '-'}",
        f"{sum(case.lengths) / timed.ours:.0f}",
        f"{roof:.0f}",
        f"{gflop / timed.ours / roof:.0%}" if gflop else "",
        f"{memory[0]:.2f}",
        f"{share:.0%}" + ("" if case.memory is None else " +" if share <= case.memory else " -"),
    ]
    return f"{name:<34}" + "".join(f"{cell:>10}" for cell in cells)


def transient(run: Callable[[], object], weights: Iterable[Tensor]) -> float:
    """GB that a second step takes above what is at rest, less the gradients of the weights."""
    run()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    rest = peak_memory()
    run()
    return (peak_memory() - rest - sum(weight.nbytes for weight in weights)) / 1e9


def in_a_process(*words: str) -> float:
    """What this script prints when it is called with ``words``."""
    # freed memory returns to the system at once, so that the resident size is what is in use
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, __file__, "--measure", *words], check=True, env=environment, stdout=-1)
    return float(done.stdout)


def measure(name: str, whose: str, quick: bool) -> None:
    """Print the transient memory of one step. ``whose``: "plain", "ours", or a number of views."""
    torch.set_num_threads(2)
    if name == LOSS:
        print(loss_memory(whose, quick))
        return
    case = smaller(CASES[name]) if quick else CASES[name]
    if whose == "plain":
        plain = Plain(transformer(*case.shape), case.layout)
        print(transient(partial(plain.update, batch_of(case, plain.model)), plain.model.parameters()))
        return
    engine = engine_of(case, recompute=whose == "recompute")
    batch = batch_of(case, engine.model, repeated(int(whose)) if whose.isdigit() else None)
    print(transient(partial(engine.update, batch, NegativeElbo()), engine.model.parameters()))


def loss_memory(whose: str, quick: bool) -> float:
    """Transient memory of the loss of 1024 states alone, over a vocabulary of 126k."""
    rows, vocabulary = (128, 8192) if quick else (1024, 126_464)
    hidden_MD, weight_VD = (torch.randn(size, 384).requires_grad_() for size in (rows, vocabulary))
    ids_M = torch.arange(rows)

    def run() -> None:
        hidden_MD.grad = weight_VD.grad = None
        if whose == "plain":
            F.cross_entropy(F.linear(hidden_MD, weight_VD), ids_M).backward()
        else:
            linear_logp(hidden_MD, weight_VD, ids_M).logp.mean().neg().backward()

    return transient(run, [])


def smaller(case: Case) -> Case:
    """The same case in seconds."""
    hidden, _, mlp, vocabulary, block = case.shape
    shape = (hidden // 64 * 8, 2, mlp // 8, vocabulary // 16, block)
    return replace(case, shape=shape, lengths=[length // 4 for length in case.lengths])


def scaling(quick: bool, rounds: int) -> None:
    """Memory over views, time over the width of a row."""
    name, flags = "vocabulary of 8k", ["--quick"] if quick else []
    gigabytes = {views: in_a_process(name, str(views), *flags) for views in (1, 2, 4)}
    print("\nmemory over views: " + "  ".join(f"{views}: {value:.2f} GB" for views, value in gigabytes.items()))
    print(f"memory with engine.recompute: {in_a_process(name, 'recompute', *flags):.2f} GB")
    ours, plain = (in_a_process(LOSS, whose, *flags) for whose in ("ours", "plain"))
    print(f"{LOSS}: {ours:.3f} GB, plain {plain:.3f} GB, 1 in {plain / ours:.1f}")
    print("\nus a token over the width of a row, block 32 (4096 tokens a step), and without attention")
    for width in (64, 128) if quick else (256, 1024, 4096):
        case = Case((256, 4, 704, 8192, 32), [width] * max(1, 4096 // width), 0)
        engine = engine_of(case)
        step = partial(engine.update, batch_of(case, engine.model), NegativeElbo())
        whole = seconds_of(step, rounds)[0]
        with patch.object(Layout, "attend", no_attention):
            rest = seconds_of(step, rounds)[0]
        print(
            f"  {width:>5} tokens" + "".join(f"{1e6 * s / sum(case.lengths):10.1f}" for s in (whole, rest)), flush=True
        )


def no_attention(_: Layout, q_MHE: Tensor, k_MHE: Tensor, v_MHE: Tensor) -> Tensor:
    """In the place of attention: something of its shape that uses all it is given."""
    return q_MHE + (k_MHE + v_MHE).repeat_interleave(q_MHE.shape[1] // k_MHE.shape[1], 1)


def main(names: list[str], quick: bool) -> None:
    torch.set_num_threads(2)
    rounds, flags = (1, ["--quick"]) if quick else (ROUNDS, [])
    print(f"{torch.get_num_threads()} threads, median of {rounds}\n")
    heads = ("ours s", "plain s", "ratio", "range", "target", "tok/s", "GFLOP/s", "MFU", "GB", "of plain")
    print(f"{'':<34}" + "".join(f"{head:>10}" for head in heads))
    for name in names or CASES:
        case = smaller(CASES[name]) if quick else CASES[name]
        memory = in_a_process(name, "ours", *flags), in_a_process(name, "plain", *flags)
        roofs: list[float] = []
        timed = interleave(*steps(case), rounds, lambda: roofs.append(sustained_gflops(quick)))  # noqa: B023, called here
        print(line(name, case, timed, statistics.median(roofs), memory), flush=True)
    if not names:
        scaling(quick, min(rounds, 3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help="all by default")
    parser.add_argument("--quick", action="store_true", help="small models, one round: does it run at all?")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.names, given.quick)
    else:
        main(given.names, given.quick)
