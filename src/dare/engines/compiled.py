"""``engine.compile``: the MLPs of a model as fused kernels."""

import importlib.util
import os
import shutil

from torch import nn

from dare.errors import DareError
from dare.models.moe import GatedMLP


def compile_mlps(model: nn.Module) -> None:
    """Compile the dense MLPs of a model in place; raises ``DareError`` where the compiler's own tools are missing.

    They are most of a step, and see one list of tokens whose length alone changes, so that a single compilation serves
    every batch. Attention is cut by the rows of a batch and would be compiled again for each.
    """
    _check_tools(next(model.parameters()).device.type)
    for module in model.modules():
        if isinstance(module, GatedMLP):
            module.compile(dynamic=True)


def _check_tools(device: str) -> None:
    if device == "cpu" and not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        raise DareError("engine.compile=true needs a C++ compiler, and there is none; install g++ or leave it out")
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        raise DareError("engine.compile=true needs Triton on a GPU; pip install triton or leave it out")
