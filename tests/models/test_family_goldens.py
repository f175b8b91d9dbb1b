"""Every family against its own reference code: logits, losses and gradient norms of tiny checkpoints."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from dare.models.checkpoint import Checkpoint, load_checkpoint, save_model
from dare.models.family import Family, family_of
from dare.models.transformer import Transformer
from dare.models.weights import tensor_targets
from families import BLOCK, FULL, load_golden
from toy import all_states

ATOL = 1e-4


def cases(golden: dict[str, Tensor], prefix: str) -> list[str]:
    return sorted({key.split("/")[0] for key in golden if key.startswith(prefix)})


def logits(model: Transformer, ids_NT: Tensor, *, clean_NT: Tensor | None = None, block: int | None = None) -> Tensor:
    if block is not None:
        model.spec = replace(model.spec, attention="block_causal", block_size=block)
    if clean_NT is not None:
        return model.head(all_states(model, ids_NT, clean_NT=clean_NT))
    return model.head(model.hidden(ids_NT, torch.full((len(ids_NT),), ids_NT.shape[1])))


def aligned(name: str, raw_NTV: Tensor) -> Tensor:
    """Reference logits are unshifted; ours put the prediction of token t at position t."""
    return torch.cat([raw_NTV[:, :1], raw_NTV[:, :-1]], 1) if name == "dream" else raw_NTV


@pytest.mark.parametrize("name", FULL + BLOCK)
def test_full_attention(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, name, tmp_path)
    checkpoint.model.spec = replace(checkpoint.model.spec, attention="full", block_size=None)
    got = logits(checkpoint.model, golden["full/input_ids"])
    torch.testing.assert_close(got, aligned(name, golden["full/logits"]), atol=ATOL, rtol=0)


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("case", ["leftpad", "rightpad"])
def test_padding(name: str, case: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, name, tmp_path)
    valid_NT = golden[f"{case}/attention_mask"].bool()
    lengths_N = valid_NT.sum(1)
    ids_NT = torch.full_like(golden[f"{case}/input_ids"], checkpoint.model.spec.pad_id)
    for row, source, valid in zip(ids_NT, golden[f"{case}/input_ids"], valid_NT, strict=True):
        row[: int(valid.sum())] = source[valid]
    got_NTV = checkpoint.model.head(checkpoint.model.hidden(ids_NT, lengths_N))
    for row, expected, valid in zip(got_NTV, golden[f"{case}/logits"], valid_NT, strict=True):
        wanted = aligned(name, expected[valid][None])[0]
        torch.testing.assert_close(row[: len(wanted)], wanted, atol=ATOL, rtol=0)


@pytest.mark.parametrize("name", BLOCK)
def test_block_causal_and_causal(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, name, tmp_path)
    for case in [*cases(golden, "block"), "causal"]:
        block = 1 if case == "causal" else int(case.removeprefix("block"))
        got = logits(checkpoint.model, golden[f"{case}/input_ids"], block=block)
        torch.testing.assert_close(got, golden[f"{case}/logits"], atol=ATOL, rtol=0, msg=case)


@pytest.mark.parametrize("name", BLOCK)
def test_noised_and_clean_halves(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, name, tmp_path)
    for case in cases(golden, "double_block"):
        block = int(case.removeprefix("double_block"))
        noisy, clean = golden[f"{case}/noisy_ids"], golden[f"{case}/clean_ids"]
        noised_NTV = logits(checkpoint.model, noisy, clean_NT=clean, block=block)
        clean_NTV = logits(checkpoint.model, clean, block=block)
        torch.testing.assert_close(torch.cat([noised_NTV, clean_NTV], 1), golden[f"{case}/logits"], atol=2e-4, rtol=0)


def test_packed_samples_equal_rows_of_their_own(shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, "sdar", tmp_path)
    for case in cases(golden, "packed_double_block"):
        block = int(case.removeprefix("packed_double_block"))
        (positions,) = golden[f"{case}/position_ids_packed"]
        starts = [*(positions == 0).nonzero()[:, 0].tolist(), len(positions)]
        noisy, clean = golden[f"{case}/noisy_ids"], golden[f"{case}/clean_ids"]
        expected = golden[f"{case}/logits"][0]
        for start, stop in pairwise(starts):
            got = logits(checkpoint.model, noisy[:, start:stop], clean_NT=clean[:, start:stop], block=block)
            half = expected[2 * start : 2 * start + stop - start]
            torch.testing.assert_close(got[0], half, atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", FULL + BLOCK)
def test_losses_and_gradient_norms(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, golden = load_golden(shared, name, tmp_path)
    model = checkpoint.model
    case = next(key.split("/")[0] for key in golden if "/grad_norm/" in key and not key.startswith("double"))
    block = None if name in FULL else int(case.removeprefix("block"))
    scored_NT = golden[f"{case}/loss_mask"].bool()
    got = logits(model, golden[f"{case}/input_ids"], block=block)
    loss = cross_entropy(got[scored_NT], golden[f"{case}/labels"][scored_NT])
    torch.testing.assert_close(loss, golden[f"{case}/loss"], rtol=1e-4, atol=0)
    loss.backward()
    for weight in model.parameters():
        weight.data = weight.grad
    gradients = {
        n: torch.cat([p.rows for p in parts]) for n, parts in tensor_targets(model, family(checkpoint)).items()
    }
    norms = {
        key.split("/grad_norm/")[1]: value for key, value in golden.items() if key.startswith(f"{case}/grad_norm/")
    }
    assert norms
    for tensor, norm in norms.items():
        torch.testing.assert_close(gradients[tensor].norm(), norm, rtol=1e-3, atol=1e-7, msg=tensor)


def family(checkpoint: Checkpoint) -> Family:
    return family_of(checkpoint.config, "test")


@pytest.mark.parametrize("name", FULL + BLOCK)
def test_save_and_load_keep_every_byte(name: str, shared: Path, tmp_path: Path) -> None:
    checkpoint, _ = load_golden(shared, name, tmp_path)
    save_model(tmp_path / "once", checkpoint)
    save_model(tmp_path / "twice", load_checkpoint(str(tmp_path / "once")))
    published = load_file(shared / "golden" / name / "model.safetensors")
    saved = load_file(tmp_path / "once" / "model.safetensors")
    assert published.keys() == saved.keys()
    assert all(torch.equal(published[key], saved[key]) for key in published)
    for file in (tmp_path / "once").iterdir():
        assert file.read_bytes() == (tmp_path / "twice" / file.name).read_bytes(), file.name
