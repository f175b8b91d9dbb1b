import json

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint, save_model
from dare.models.llada import tensor_name

CASES = ("leftpad", "rightpad")


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "golden" / "llada"


@pytest.fixture(scope="module")
def golden(folder):
    return load_file(folder / "forward.safetensors")


@pytest.fixture(scope="module")
def checkpoint(folder):
    return load_checkpoint(str(folder))


def _close(found, wanted):
    return torch.allclose(found, wanted, rtol=0, atol=1e-4)


def test_logits_and_states(golden, checkpoint):
    model, ids_BT = checkpoint.model, golden["full/input_ids"]
    with torch.no_grad():
        hidden_BTD = model.hidden(ids_BT, torch.full((len(ids_BT),), ids_BT.shape[1]))
    last = max(int(name.rpartition("/")[2]) for name in golden if name.startswith("full/hidden_states/"))
    assert _close(hidden_BTD, golden[f"full/hidden_states/{last}"])
    assert _close(model.head(hidden_BTD), golden["full/logits"])


@pytest.mark.parametrize("case", CASES)
def test_padded_rows_as_one_unequal_batch(case, golden, checkpoint):
    ids_BT, valid_BT = golden[f"{case}/input_ids"], golden[f"{case}/attention_mask"].bool()
    lengths_B = valid_BT.sum(1)
    assert lengths_B.min() < lengths_B.max()
    packed_BT = torch.full_like(ids_BT, checkpoint.model.spec.pad_id)
    for row, valid_T in enumerate(valid_BT):
        packed_BT[row, : lengths_B[row]] = ids_BT[row, valid_T]
    with torch.no_grad():
        logits_BTV = checkpoint.model.head(checkpoint.model.hidden(packed_BT, lengths_B))
    for row, valid_T in enumerate(valid_BT):
        assert _close(logits_BTV[row, : lengths_B[row]], golden[f"{case}/logits"][row, valid_T])


def test_loss_and_gradient_norms(golden, folder):
    model = load_checkpoint(str(folder)).model
    ids_BT, scored_BT = golden["full/input_ids"], golden["full/loss_mask"]
    hidden_BTD = model.hidden(ids_BT, torch.full((len(ids_BT),), ids_BT.shape[1]))
    loss = F.cross_entropy(model.head(hidden_BTD[scored_BT]), golden["full/labels"][scored_BT])
    assert torch.allclose(loss, golden["full/loss"], rtol=1e-4)
    loss.backward()
    norms = {tensor_name(name): weight.grad.norm() for name, weight in model.named_parameters()}
    wanted = {name.removeprefix("full/grad_norm/"): x for name, x in golden.items() if "/grad_norm/" in name}
    assert norms.keys() == wanted.keys()
    for name, norm in norms.items():
        assert torch.allclose(norm, wanted[name], rtol=1e-3), name


def test_save_and_load_keep_every_tensor(tmp_path, folder, checkpoint):
    save_model(tmp_path, checkpoint)
    original, written = load_file(folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert original.keys() == written.keys()
    again = dict(load_checkpoint(str(tmp_path)).model.named_parameters())
    for name, weight in checkpoint.model.named_parameters():
        assert torch.equal(written[tensor_name(name)], original[tensor_name(name)])
        assert torch.equal(again[name], weight)
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_type": "gelu"}, "activation_type='gelu'"),
        ({"include_qkv_bias": True}, "include_qkv_bias=True"),
        ({"n_kv_heads": 2}, "n_kv_heads=2"),
        ({"architectures": ["LLaDAModel"]}, "'LLaDAModel'.*LLaDAModelLM"),
        ({"architectures": []}, "architecture"),
        ({"d_model": None}, "d_model"),
        ({"mlp_hidden_size": 128}, r"ff_proj.*\(160, 64\).*\(128, 64\)"),
    ],
)
def test_a_config_we_cannot_honour_is_refused_by_name(tmp_path, folder, change, named):
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(DareError, match=named):
        load_checkpoint(str(tmp_path))


def test_a_missing_tensor_is_named(tmp_path, folder):
    gone = "model.transformer.blocks.1.up_proj.weight"
    with safe_open(folder / "model.safetensors", "pt") as file:
        save_file({k: file.get_tensor(k) for k in file.keys() if k != gone}, tmp_path / "model.safetensors")  # noqa: SIM118
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(DareError, match=gone):
        load_checkpoint(str(tmp_path))
