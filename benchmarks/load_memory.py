"""Peak memory of loading a checkpoint, as a ratio to its weights. Run: python benchmarks/load_memory.py [GB]

A random LLaDA-layout checkpoint is written in shards, then loaded in a fresh process. The baseline is the same process
before loading.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from dare.models.checkpoint import build, load_checkpoint
from dare.models.family import family_of
from dare.models.weights import save_weights

LAYER_BYTES = 4 * (4 * 2048**2 + 3 * 2048 * 6144)


def config(layers: int) -> dict[str, object]:
    return {
        "architectures": ["LLaDAModelLM"],
        "d_model": 2048,
        "n_layers": layers,
        "n_heads": 16,
        "n_kv_heads": 16,
        "mlp_hidden_size": 6144,
        "rope_theta": 5e5,
        "rms_norm_eps": 1e-5,
        "weight_tying": False,
        "embedding_size": 8192,
        "max_sequence_length": 4096,
        "mask_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


def write(folder: Path, gigabytes: float) -> None:
    settings = config(max(1, round(gigabytes * 1e9 / LAYER_BYTES)))
    model = build(settings, folder).to_empty(device="cpu")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    save_weights(model, folder, family_of(settings, "benchmark"), shard_bytes=500_000_000)
    (folder / "config.json").write_text(json.dumps(settings))


def measure(folder: str) -> None:
    before = peak()
    model = load_checkpoint(folder).model
    weights = sum(weight.nbytes for weight in model.parameters())
    used = peak() - before
    print(f"weights {weights / 1e9:.2f} GB, peak {used / 1e9:.2f} GB, ratio {used / weights:.3f}")


def peak() -> int:
    # getrusage would carry the parent's peak over; this one starts anew with the program (Linux)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
            subprocess.run([sys.executable, __file__, "--measure", folder], check=True)
