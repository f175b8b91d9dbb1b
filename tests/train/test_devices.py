"""Weights go from the files to the engine's device. The meta device stands in for a GPU: it is not the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dare.config import load_config
from dare.models.checkpoint import load_checkpoint, save_model
from dare.models.lora import LoraSettings, add_adapter
from dare.models.lora_files import save_adapter
from dare.train import run
from dare.train.config import SFTConfig
from dare.train.run import load_model, starting_model

ALLOCATING = {"empty", "empty_like", "_to_copy", "clone"}
"""What would make a copy; a tensor read from a file is a view of its mapped pages."""


class CpuSizes(TorchDispatchMode):
    """Records the number of elements of every tensor that an operation allocates on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in ALLOCATING and result.device.type == "cpu":
            self.seen.append(result.numel())
        return result


def config(path: object, tmp_path: Path, device: str = "meta") -> SFTConfig:
    layers = [f"model.path={path}", f"output={tmp_path / 'run'}", f"engine.device={device}", "engine.dtype=bfloat16"]
    return load_config(SFTConfig, layers)


def test_a_folder_is_read_to_the_device_without_a_copy_on_the_cpu(tmp_path: Path) -> None:
    save_model(tmp_path / "saved", load_checkpoint("tiny:masked"))
    with CpuSizes() as cpu:
        model = starting_model(config(tmp_path / "saved", tmp_path)).model
    assert {(weight.device.type, weight.dtype) for weight in model.parameters()} == {("meta", torch.bfloat16)}
    assert max(cpu.seen, default=0) < min(weight.numel() for weight in model.parameters() if weight.dim() > 1)
    with CpuSizes() as cpu:
        starting_model(config(tmp_path / "saved", tmp_path, device="cpu"))
    assert max(cpu.seen) >= model.embed.weight.numel()  # the record does see a copy where there is one


def test_an_embedded_model_goes_there_too_and_a_plan_stays_on_the_cpu(tmp_path: Path) -> None:
    for device, wanted in ((None, "meta"), ("cpu", "cpu")):
        model = starting_model(config("tiny:masked", tmp_path), device=device).model
        assert {weight.device.type for weight in model.parameters()} == {wanted}


def test_an_adapter_is_merged_where_its_base_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = add_adapter(load_checkpoint("tiny:masked").model, LoraSettings(rank=2), 0, base="tiny:masked", revision="0")
    (tmp_path / "adapter").mkdir()
    save_adapter(tmp_path / "adapter", model)
    asked: list[str] = []
    monkeypatch.setattr(
        run, "load_checkpoint", lambda *a, **k: (asked.append(k["device"]), load_checkpoint(*a, **k))[1]
    )
    load_model(str(tmp_path / "adapter"), device="cpu:0")
    assert asked == ["cpu:0"]
