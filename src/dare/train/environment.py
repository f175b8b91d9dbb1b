"""What a run runs on: versions, machine, source. No user, host or folder names, no variables of the environment."""

import json
import os
import platform
import subprocess
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import dare
from dare.files import write_atomically

ENVIRONMENT = "environment.json"
_LIBRARIES = ("dare", "torch", "transformers", "tokenizers", "safetensors", "numpy", "datasets")


def run_id(folder: Path) -> str:
    """The identifier a run keeps through all its starts."""
    return json.loads((folder / ENVIRONMENT).read_text())["run"]


def record_environment(folder: Path, device: str, start: int) -> None:
    """Write ``environment.json``: the run's identifier, and what it ran on from which step on."""
    path, now = folder / ENVIRONMENT, environment(device)
    known: dict[str, Any] = {"run": uuid.uuid4().hex[:12], "from_step": {}}
    if path.is_file():
        known = json.loads(path.read_text())
    if now not in list(known["from_step"].values())[-1:]:
        known["from_step"][str(start + 1)] = now
        write_atomically(path, json.dumps(known, indent=2) + "\n")


def environment(device: str) -> dict[str, Any]:
    """Describe this process."""
    return {
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": _device(device),
        "git": git_state(Path(dare.__file__).parent),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that ``folder`` is part of, and whether tracked files differ; None outside of one."""
    # an environment inside somebody's checkout is not part of it
    if _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None
    commit, changed = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "dirty": bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    """The model's name; Linux tells it in one place only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _device(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    return f"{device}: {torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
