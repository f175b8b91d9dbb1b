"""What the benchmarks share: models of published shapes, interleaved timing, the machine's peak, useful FLOPs."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.decoding.schedule import quotas
from dare.diffusion.noise import key
from dare.models.base import ModelSpec
from dare.models.packed import PackedLinear
from dare.models.transformer import Architecture, Transformer
from dare.types import Rollouts


def shaped(kind: str, quick: bool) -> Transformer:
    """Random weights in LLaDA's shape ("full") or SDAR's ("block"): 59 M and 57 M parameters, 0.3 M with ``quick``."""
    sizes = (128, 2, 384, 512) if quick else (512, 8, 1408, 32768)
    return transformer(*sizes, 4 if kind == "block" else None)


def transformer(hidden: int, layers: int, mlp: int, vocab: int, block: int | None) -> Transformer:
    """Random weights, heads of 64 features; with ``block`` in SDAR's shape, whose query heads share key heads."""
    spec = ModelSpec(
        family="block" if block else "full",
        mask_id=vocab - 1,
        eos_ids=(vocab - 3,),
        pad_id=vocab - 2,
        vocab_size=vocab,
        context=4096,
        attention="block_causal" if block else "full",
        block_size=block,
    )
    heads = max(2, hidden // 64)
    arch = Architecture(
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads // 2 if block else heads,
        head_size=64,
        rotary_size=64,
        mlp_size=mlp,
        rope_theta=1e4,
        qk_norm=block is not None,
    )
    torch.manual_seed(0)
    model = Transformer(arch, spec)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.02) if weight.dim() > 1 else nn.init.ones_(weight)
    return model


def prompts(model: Transformer, rows: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(model.spec.vocab_size - 3, (rows, length), generator=generator)


def ours(model: Transformer, prompt_BP: Tensor, length: int, **settings: Any) -> Rollouts:
    decoding = DecodingConfig(max_new_tokens=length, stop_at_eos=False, **settings)
    index_B = torch.arange(len(prompt_BP))
    return denoise(model, prompt_BP.tolist(), decoding, key("bench", index_B), index_B, rows=len(prompt_BP))


def clock(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


class Timed(NamedTuple):
    """Median seconds of two candidates, their ratio in each round (rising), and what they returned last."""

    ours: float
    theirs: float
    ratios: list[float]
    results: tuple[Any, Any]


def interleave(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int, before: Callable[[], Any] = lambda: None
) -> Timed:
    """Run both once to warm up, then in turns; ``before`` is called at the start of each round."""
    ours(), theirs()
    pairs = [(before(), clock(ours), clock(theirs))[1:] for _ in range(rounds)]
    (_, first), (_, second) = pairs[-1]
    ratios = sorted(slow / fast for (fast, _), (slow, _) in pairs)
    median = statistics.median
    return Timed(median(a for (a, _), _ in pairs), median(b for _, (b, _) in pairs), ratios, (first, second))


def seconds_of(run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median seconds after a warm-up, and the last result."""
    run()
    timed = [clock(run) for _ in range(rounds)]
    return statistics.median(seconds for seconds, _ in timed), timed[-1][1]


def peak_gflops(quick: bool) -> float:
    """The best of square products, plain and packed."""
    best = 0.0
    for size in (512,) if quick else (1024, 2048):
        x = torch.randn(size, size)
        plain, packed = x.T.contiguous(), PackedLinear(x, None)
        for run in (partial(torch.matmul, x, plain), partial(packed, x)):
            best = max(best, *(2e-9 * size**3 / clock(run)[0] for _ in range(8)))
    return best


def sustained_gflops(quick: bool) -> float:
    """The speed of packed square products in a row, for about two seconds: what the machine gives at this time."""
    size, count = (512, 8) if quick else (2048, 24)
    x = torch.randn(size, size)
    packed = PackedLinear(x, None)
    packed(x)
    return 2e-9 * size**3 * count / clock(lambda: [packed(x) for _ in range(count)])[0]


def useful_gflop(model: Transformer, cache: str, rows: int, prompt: int, length: int, block: int, steps: int) -> float:
    """The arithmetic that ``rows`` rows need under the cache's rule, in units of 1e9 operations.

    A product of weights counts 2 per number and position that has to be computed (norms, rotation and softmax count
    nothing), attention 4 per pair of query and visible key, head and feature, the vocabulary 2 per number and position
    still open in the row's block. With the block cache the prompt is read once for all rows, and a finished block once
    more. The same count is held against ours and plain.
    """
    arch = model.arch
    body = sum(weight.numel() for weight in model.blocks.parameters() if weight.dim() > 1)
    pair, entry = 4 * arch.layers * arch.heads * arch.head_size, arch.hidden_size * model.spec.vocab_size
    total = 0.0
    for positions, keys, opened in _passes(cache, prompt, length, block, steps):
        total += rows * (positions * (2 * body + pair * keys) + 2 * entry * opened)
    if cache == "block":
        total += prompt * (2 * body + pair * (prompt + block) / 2)
    return total / 1e9


def _passes(cache: str, prompt: int, length: int, block: int, steps: int) -> Iterator[tuple[int, int, int]]:
    """Positions computed, keys they see and positions open, for each pass of a row."""
    width = prompt + length
    for start in range(0, length, block):
        opened = block
        for step, quota in enumerate(quotas(block, steps, "even")):
            if cache == "block":
                yield block * (2 if start and not step else 1), prompt + start + block, opened
            else:
                yield (block if cache == "dual" and step else width), width, opened
            opened -= quota
