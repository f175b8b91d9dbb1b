"""The memory of one update beside what ``dare plan`` expects. Run: python benchmarks/update_memory.py [CASE ...]

A case is "MODEL ROWS WIDTH", the sizes of one micro-batch; MODEL is an embedded model or
random:LAYERSxHIDDENxVOCABULARY. The measured figure is the peak of a second update above the memory at rest (weights
and both moments), less the gradients, which the first micro-batch leaves behind. Each case runs in a process of its
own, on Linux.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch
from load_memory import config, peak

from dare.algorithms.sft import NegativeElbo
from dare.batch import Batch
from dare.diffusion.noise import key
from dare.diffusion.views import fully_masked
from dare.engines.config import EngineConfig, OptimConfig
from dare.engines.local import LocalEngine
from dare.models.checkpoint import Checkpoint, build, load_checkpoint
from dare.plan_memory import activations
from dare.types import pack

CASES = ["tiny:masked 64 128", "tiny:block 32 128", "random:8x512x32000 8 256", "random:1x64x50000 8 128"]


def measure(name: str, rows: int, width: int) -> None:
    """Print the two figures for micro-batches of ``rows`` sequences of ``width`` tokens, half of them response."""
    engine = LocalEngine(checkpoint(name), EngineConfig(micro_batch=rows), OptimConfig(), total_updates=2)
    seqs = pack([[1] * (width - row % 2) for row in range(2 * rows)], [width // 2] * 2 * rows, engine.spec.pad_id)
    batch = Batch(seqs, fully_masked(seqs, key(0, torch.arange(2 * rows))), seqs.response_BT)
    engine.update(batch, NegativeElbo())
    expected = activations(engine.model, rows, width, rows * width // 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    rest = peak()
    engine.update(batch, NegativeElbo())
    measured = peak() - rest - sum(weight.nbytes for weight in engine.trained)
    total = expected.states + expected.logits
    print(
        f"{name}, {rows} x {width} tokens: expected {total / 1e9:.3f} GB ({expected.logits / 1e9:.3f} GB logits), "
        f"measured {measured / 1e9:.3f} GB, ratio {total / measured:.2f}"
    )


def checkpoint(name: str) -> Checkpoint:
    """The model of a case."""
    kind, _, sizes = name.partition(":")
    if kind == "tiny":
        return load_checkpoint(name)
    layers, hidden, vocabulary = map(int, sizes.split("x"))
    other = {"d_model": hidden, "n_heads": 8, "n_kv_heads": 8, "mlp_hidden_size": 3 * hidden}
    settings = {**config(layers), **other, "embedding_size": vocabulary}
    model = build(settings, Path(name)).to_empty(device="cpu")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    return Checkpoint(model, settings, None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        # freed memory returns to the system at once, so that the resident size is what is in use
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        for case in sys.argv[1:] or CASES:
            subprocess.run([sys.executable, __file__, "--measure", *case.split()], check=True, env=environment)
