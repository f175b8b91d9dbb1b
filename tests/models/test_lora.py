import json
import sys
from dataclasses import replace

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dare.errors import DareError
from dare.models.lora import LoraSettings, adapter_off, add_adapter, has_adapter, merge_adapter
from dare.models.lora_files import load_adapter, save_adapter
from dare.models.transformer import Transformer
from toy import toy_model

SETTINGS = LoraSettings(rank=3, alpha=7.0)
IDS, LENGTHS = torch.tensor([[0, 1, 4, 4, 1], [1, 4, 0, 3, 3]]), torch.tensor([5, 3])


def model_of(kind: str, dtype: torch.dtype = torch.float64) -> Transformer:
    toy = toy_model()
    if kind == "untied":
        return toy.to(dtype)
    model = Transformer(replace(toy.arch, tied=True), toy.spec).double()
    model.load_state_dict({name: w for name, w in toy.state_dict().items() if name != "unembed.weight"})
    return model.to(dtype)


def with_one_more_token(model: Transformer) -> Transformer:
    """The same model with a row more in the embedding and, where it has its own, in the output matrix."""
    spec = replace(model.spec, vocab_size=model.spec.vocab_size + 1)
    larger = Transformer(model.arch, spec).to(model.embed.weight.dtype)
    for name, weight in larger.named_parameters():
        old = model.get_parameter(name)
        extra = torch.full((len(weight) - len(old), *old.shape[1:]), 0.25, dtype=old.dtype)
        weight.data.copy_(torch.cat([old.data, extra]))
    return larger


def with_adapter(model: Transformer) -> Transformer:
    """An adapter whose B is not zero any more."""
    add_adapter(model, SETTINGS, seed=1)
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data.normal_(std=0.2, generator=generator)
    return model


def logits(model: Transformer) -> Tensor:
    return model.head(model.hidden(IDS, LENGTHS)).detach()


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("added", [0, 1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_merging_equals_base_plus_adapter(kind, added, dtype, tolerance):
    model = model_of(kind, dtype)
    if added:
        model = with_one_more_token(model)
    names, before = list(model.state_dict()), logits(model)
    with_adapter(model)
    together = logits(model)
    merge_adapter(model)
    assert list(model.state_dict()) == names and not has_adapter(model)
    assert all(weight.requires_grad for weight in model.parameters())
    scale = together.abs().max()
    assert float((logits(model) - together).abs().max() / scale) < tolerance
    assert float((together - before).abs().max() / scale) > 0.1
    assert together.shape[-1] == model.spec.vocab_size == 5 + added


def test_a_fresh_adapter_changes_nothing_and_depends_on_the_seed_alone():
    model, before = model_of("untied"), logits(model_of("untied"))
    state = torch.get_rng_state()
    add_adapter(model, SETTINGS, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(logits(model), before)
    torch.rand(7)
    again, other = (add_adapter(model_of("untied"), SETTINGS, seed=seed) for seed in (3, 4))
    name = "blocks.1.mlp.up.lora_A.default.weight"
    assert torch.equal(model.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(model.get_parameter(name), other.get_parameter(name))


def test_the_gradient_reaches_the_adapter_alone():
    model = with_adapter(model_of("tied"))
    model.head(model.hidden(IDS, LENGTHS)).square().sum().backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is not None and bool(weight.grad.any())) == (".lora_" in name), name


def test_without_its_adapter_the_model_is_the_base_bit_for_bit():
    before = logits(model_of("untied"))
    model = with_adapter(model_of("untied"))
    together = logits(model)
    with adapter_off(model):
        assert torch.equal(logits(model), before)
    assert torch.equal(logits(model), together)
    assert sum(weight.requires_grad for weight in model.parameters()) == 2 * 2 * 7


def test_a_bfloat16_model_has_a_float32_adapter():
    model = add_adapter(model_of("untied", torch.bfloat16), SETTINGS, seed=0)
    assert {weight.dtype for weight in model.parameters() if weight.requires_grad} == {torch.float32}
    assert logits(model).dtype == torch.bfloat16


def test_saving_and_loading_is_exact(tmp_path):
    model = with_adapter(model_of("untied"))
    save_adapter(tmp_path, model)
    assert torch.equal(logits(load_adapter(model_of("untied"), tmp_path)), logits(model))
    fresh = add_adapter(model_of("untied"), SETTINGS, seed=9)
    assert torch.equal(logits(load_adapter(fresh, tmp_path)), logits(model))


def test_peft_reads_the_files(tmp_path):
    model = with_adapter(model_of("untied"))
    save_adapter(tmp_path, model)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 7.0)
    theirs = peft.PeftModel.from_pretrained(model_of("untied"), str(tmp_path)).base_model.model
    assert torch.equal(logits(theirs), logits(model))
    mine = add_adapter(model_of("untied"), SETTINGS, seed=0)
    result = peft.set_peft_model_state_dict(mine, peft.load_peft_weights(str(tmp_path), device="cpu"))
    assert not result.unexpected_keys
    assert torch.equal(logits(mine), logits(model))


def test_files_are_the_same_whenever_they_are_written(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_adapter(tmp_path / name, with_adapter(model_of("untied")))
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    targets = json.loads((tmp_path / "one" / "adapter_config.json").read_text())["target_modules"]
    assert targets == sorted(targets)


def test_a_subset_of_the_projections_can_be_chosen():
    model = add_adapter(model_of("untied"), LoraSettings(rank=1, targets=("q", "v")), seed=0)
    assert sum(weight.requires_grad for weight in model.parameters()) == 2 * 2 * 2


def test_what_cannot_work_is_refused(tmp_path, monkeypatch):
    with pytest.raises(DareError, match="'qu' is no linear projection here; did you mean 'q'"):
        add_adapter(model_of("tied"), LoraSettings(targets=("qu",)), seed=0)
    with pytest.raises(ValueError, match="must be 0: the gradient of several views"):
        LoraSettings(dropout=0.1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DareError, match="needs an NVIDIA GPU"):
        add_adapter(model_of("tied"), LoraSettings(four_bit=True), seed=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(DareError, match="pip install bitsandbytes"):
        add_adapter(model_of("tied"), LoraSettings(four_bit=True), seed=0)


def test_a_saved_adapter_that_does_not_fit_is_named(tmp_path):
    save_adapter(tmp_path, with_adapter(model_of("untied")))
    with pytest.raises(DareError, match=r"has shape \(3, 16\); the model needs \(4, 16\)"):
        load_adapter(add_adapter(model_of("untied"), LoraSettings(rank=4), seed=0), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors["base_model.model.unknown"] = tensors.popitem()[1]
    save_file(tensors, file)
    with pytest.raises(DareError, match="is missing or has no place"):
        load_adapter(model_of("untied"), tmp_path)
    file.unlink()
    with pytest.raises(DareError, match=r"no adapter_model\.safetensors there"):
        load_adapter(model_of("untied"), tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(DareError, match="not an adapter's settings"):
        load_adapter(model_of("untied"), tmp_path)
