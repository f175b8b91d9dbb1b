import weakref

import pytest
import torch
from torch import nn

from dare.decoding import decoder
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.models.base import ModelSpec
from dare.models.packed import PackedLinear, packed
from dare.models.transformer import Architecture, Transformer
from rows import keys
from toy import toy_model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN")

PROMPTS = [[5], [6, 7, 8, 9, 10], [11, 12, 13], [14, 15]]
KINDS = {
    "none": (None, {"cache": "none", "block_size": 6}),
    "dual": (None, {"cache": "dual", "block_size": 6}),
    "prefix": (None, {"cache": "prefix", "block_size": 6, "threshold": 0.05}),
    "block": (4, {}),
    "sampled": (4, {"temperature": 1.0}),
}


def _model(block_size: int | None = None, tied: bool = False, layers: int = 2) -> Transformer:
    spec = ModelSpec(
        family="wide",
        mask_id=299,
        eos_ids=(297,),
        pad_id=298,
        vocab_size=300,
        context=64,
        attention="block_causal" if block_size else "full",
        block_size=block_size,
    )
    arch = Architecture(
        hidden_size=256,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_size=64,
        rotary_size=64,
        mlp_size=272,
        rope_theta=100.0,
        qkv_bias=True,
        qk_norm=True,
        tied=tied,
    )
    torch.manual_seed(3)
    model = Transformer(arch, spec)
    for weight in model.parameters():
        # far from ties, which rounding would decide
        nn.init.normal_(weight, mean=float(weight.dim() == 1), std=0.2)
    return model


def _decode(model, prompts=PROMPTS, key_B=None, **settings):
    decoding = DecodingConfig(max_new_tokens=12, stop_at_eos=False, **settings)
    key_B = keys(len(prompts)) if key_B is None else key_B
    return denoise(model, prompts, decoding, key_B, torch.arange(len(prompts)))


def _packs(model):
    return [module for module in model.modules() if isinstance(module, PackedLinear)]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_is_the_same_with_and_without(kind, tied, monkeypatch):
    block_size, settings = KINDS[kind]
    model = _model(block_size, tied)
    # attention's k and v are narrow; the rest and the head are packed
    assert len(_packs(packed(model))) == 2 * 5 + 1
    with_packs = _decode(model, **settings)
    monkeypatch.setattr(decoder, "packed", lambda model: model)
    without = _decode(model, **settings)
    assert torch.equal(with_packs.seqs.ids_BT, without.seqs.ids_BT)
    assert torch.equal(with_packs.unmask_step_BT, without.unmask_step_BT)
    torch.testing.assert_close(with_packs.logp_BT, without.logp_BT, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_decodes_the_same_alone(kind):
    block_size, settings = KINDS[kind]
    model, key_B = _model(block_size), keys(4, "alone")
    together = _decode(model, key_B=key_B, **settings)
    for row, prompt in enumerate(PROMPTS):
        alone = _decode(model, [prompt], key_B[row : row + 1], **settings)
        width = len(prompt) + 12
        assert torch.equal(together.seqs.ids_BT[row, :width], alone.seqs.ids_BT[0, :width])
        torch.testing.assert_close(together.logp_BT[row, :width], alone.logp_BT[0, :width], atol=1e-5, rtol=1e-5)


def test_a_row_is_projected_the_same_whatever_its_company():
    x_ND = torch.randn(200, 256)
    linear = PackedLinear(torch.randn(320, 256), torch.randn(320))
    whole_NE = linear(x_ND)
    for rows in (1, 2, 3, 4, 7, 8, 31, 33, 64, 199):
        torch.testing.assert_close(linear(x_ND[:rows]), whole_NE[:rows], atol=1e-5, rtol=1e-6)
    expected = nn.functional.linear(x_ND.double(), linear.weight.double(), linear.bias.double()).float()
    torch.testing.assert_close(whole_NE, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_changed_weights_are_seen(tied):
    model = _model(tied=tied)
    view, x_ND = packed(model), torch.randn(5, 256)
    ids_NT, lengths_N = torch.arange(12).view(2, 6), torch.tensor([6, 4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = _decode(model).seqs.ids_BT
    for change in ("step", "load", "replace"):
        if change == "step":
            model.head(model.hidden(ids_NT, lengths_N)).square().mean().backward()
            optimizer.step()
        elif change == "load":
            model.load_state_dict({name: -weight for name, weight in model.state_dict().items()})
        else:
            for weight in model.parameters():
                weight.data = torch.randn_like(weight) * 0.1
        with torch.no_grad():
            torch.testing.assert_close(view.head(x_ND), model.head(x_ND), atol=1e-4, rtol=1e-5)
            hidden_NTD = model.hidden(ids_NT, lengths_N)
            torch.testing.assert_close(view.hidden(ids_NT, lengths_N), hidden_NTD, atol=1e-4, rtol=1e-4)
    assert not torch.equal(_decode(model).seqs.ids_BT, before)


def test_the_model_itself_stays_as_it_is_and_trains():
    model = _model()
    names = list(model.state_dict())
    view = packed(model)
    assert not _packs(model)
    assert list(model.state_dict()) == names == list(view.state_dict())
    model.head(model.hidden(torch.arange(6)[None], torch.tensor([6]))).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_copies_are_shared_and_given_back():
    model = _model()
    first, second = packed(model), packed(model)
    assert all(a is b for a, b in zip(_packs(first), _packs(second), strict=True))
    copies = [weakref.ref(pack) for pack in _packs(first)]
    del first
    assert all(copy() is not None for copy in copies)
    del second
    assert all(copy() is None for copy in copies)


def test_what_cannot_be_packed_is_left_alone(monkeypatch):
    assert not _packs(packed(toy_model()))  # float64
    assert not _packs(packed(_model().bfloat16()))
    with torch.inference_mode():
        assert not _packs(packed(_model()))
    reader = object()
    assert packed(reader) is reader
    model = _model()
    monkeypatch.setattr("dare.models.packed._SHARE", 0.0)
    assert packed(model) is model


def test_an_adapter_is_decoded_with():
    pytest.importorskip("peft")
    from dare.models.lora import LoraSettings, adapter_off, adapter_weights, add_adapter

    model = _model()
    base = _decode(model).seqs.ids_BT
    add_adapter(model, LoraSettings(rank=8), seed=0)
    assert torch.equal(_decode(model).seqs.ids_BT, base)
    with torch.no_grad():
        for weight in adapter_weights(model).values():
            weight.normal_(std=0.2)
    adapted = _decode(model).seqs.ids_BT
    assert not torch.equal(adapted, base)
    with adapter_off(model):
        assert torch.equal(_decode(model).seqs.ids_BT, base)
