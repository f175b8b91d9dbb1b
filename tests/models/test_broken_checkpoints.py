import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.family import family_of
from dare.models.weights import save_weights


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "golden" / "llada"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_type": "gelu"}, "activation_type='gelu'"),
        ({"include_qkv_bias": True}, "include_qkv_bias=True"),
        ({"architectures": ["LLaDAModel"]}, "'LLaDAModel'.*LLaDAModelLM"),
        ({"architectures": []}, "architecture"),
        ({"d_model": None}, "d_model"),
        ({"n_layers": 2}, "blocks.2.*no place"),
        ({"n_layers": 4}, "blocks.3.*missing"),
        ({"mlp_hidden_size": 128}, r"ff_proj.*\(160, 64\).*\(128, 64\)"),
    ],
)
def test_a_config_we_cannot_honour_is_refused_by_name(
    tmp_path: Path, folder: Path, change: dict[str, object], named: str
) -> None:
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(DareError, match=named):
        load_checkpoint(str(tmp_path))


def test_a_missing_tensor_is_named(tmp_path: Path, folder: Path) -> None:
    gone = "model.transformer.blocks.1.up_proj.weight"
    with safe_open(folder / "model.safetensors", "pt") as file:
        save_file({k: file.get_tensor(k) for k in file.keys() if k != gone}, tmp_path / "model.safetensors")  # noqa: SIM118
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(DareError, match=gone):
        load_checkpoint(str(tmp_path))


def sharded(folder: Path, out: Path) -> Path:
    """The same checkpoint cut into shards of 100 kB."""
    checkpoint = load_checkpoint(str(folder))
    out.mkdir()
    save_weights(checkpoint.model, out, family_of(checkpoint.config, "test"), shard_bytes=100_000)
    shutil.copy(folder / "config.json", out / "config.json")
    return out


def test_shards_load_to_the_same_bytes(tmp_path: Path, folder: Path) -> None:
    out = sharded(folder, tmp_path / "shards")
    shards = sorted(out.glob("model-*.safetensors"))
    assert len(shards) > 3
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    published = load_file(folder / "model.safetensors")
    assert index.keys() == published.keys()
    loaded = load_checkpoint(str(out)).model.state_dict()
    for name, weight in load_checkpoint(str(folder)).model.state_dict().items():
        assert torch.equal(weight, loaded[name])


def test_a_missing_or_truncated_shard_is_named(tmp_path: Path, folder: Path) -> None:
    out = sharded(folder, tmp_path / "shards")
    first, second = sorted(out.glob("model-*.safetensors"))[:2]
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DareError, match=f"{first.name}: broken or truncated"):
        load_checkpoint(str(out))
    first.write_bytes(whole)
    second.unlink()
    with pytest.raises(DareError, match=f"{second.name} is missing"):
        load_checkpoint(str(out))


def test_pickled_weights_are_never_read(tmp_path: Path, folder: Path) -> None:
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    (tmp_path / "pytorch_model.bin").write_bytes(b"not to be opened")
    with pytest.raises(DareError, match="no pickled weights"):
        load_checkpoint(str(tmp_path))


def test_weights_take_the_asked_dtype(folder: Path) -> None:
    model = load_checkpoint(str(folder), dtype=torch.bfloat16).model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
