"""LLaDA-MoE against an implementation of the same decoder that is not ours.

With ``norm_topk_prob`` off and an open mask, Qwen3-MoE of transformers computes what the family's published code does:
queries and keys normed per head, softmax over all experts, the chosen probabilities not rescaled. OLMoE of
transformers norms the whole projection, so it is no reference.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Qwen3MoeForCausalLM

from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint, save_model
from dare.models.family import family_of
from dare.models.weights import tensor_targets
from families import CONFIG, EOS, EXPERTS, MASK, llada_moe_shapes, small_llada_moe, write_llada_moe

LENGTHS = [11, 7]


def reference(folder: Path) -> Qwen3MoeForCausalLM:
    write_llada_moe(folder)
    same = {"num_experts": EXPERTS, "head_dim": 8, "moe_intermediate_size": 12, "norm_topk_prob": False}
    config = {**CONFIG, **same, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    model, info = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    return model


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Ids, lengths, and the open mask of the padded rows as a bias ``[N, 1, T, T]``."""
    ids_NT = torch.randint(45, (2, 11), generator=torch.Generator().manual_seed(1))
    ids_NT[:, ::3] = MASK
    lengths_N = torch.tensor(LENGTHS)
    closed_NT = torch.arange(11) >= lengths_N[:, None]
    bias = torch.zeros(2, 1, 11, 11).masked_fill(closed_NT[:, None, None], torch.finfo(torch.float32).min)
    return ids_NT, lengths_N, bias


@pytest.mark.parametrize("architecture", ["LLaDAMoEModelLM", "LLaDAMoEModel"])
def test_it_is_found_from_the_config_and_the_mask_by_its_name(architecture: str, tmp_path: Path) -> None:
    spec = load_checkpoint(write_llada_moe(tmp_path, architectures=[architecture])).model.spec
    assert (spec.family, spec.attention, spec.mask_id, spec.eos_ids) == ("llada_moe", "full", MASK, (EOS,))


@pytest.mark.parametrize("name", ["llada_moe"])
def test_losses_and_gradients(name: str, tmp_path: Path) -> None:
    checkpoint, theirs = small_llada_moe(tmp_path), reference(tmp_path / name)
    ids_NT, lengths_N, bias = inputs()
    valid_NT = torch.arange(11) < lengths_N[:, None]
    got_NTV = checkpoint.model.head(checkpoint.model.hidden(ids_NT, lengths_N))
    wanted_NTV = theirs(input_ids=ids_NT, attention_mask=bias).logits
    torch.testing.assert_close(got_NTV[valid_NT], wanted_NTV[valid_NT], atol=1e-4, rtol=0)
    scored_NT = (ids_NT == MASK) & valid_NT
    clean_M = torch.arange(int(scored_NT.sum()))
    for logits_NTV in (got_NTV, wanted_NTV):
        cross_entropy(logits_NTV[scored_NT], clean_M).backward()
    expected = split_experts({name: weight.grad for name, weight in theirs.named_parameters()})
    for weight in checkpoint.model.parameters():
        weight.data = weight.grad
    targets = tensor_targets(checkpoint.model, family_of(checkpoint.config, "test"))
    assert targets.keys() == expected.keys() == llada_moe_shapes().keys()
    for tensor, parts in targets.items():
        rows = torch.cat([part.rows for part in parts])
        torch.testing.assert_close(rows, expected[tensor], atol=1e-5, rtol=1e-4, msg=tensor)


def split_experts(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    """The reference holds the experts of a layer in two tensors; name them as they lie in the file."""
    found = {}
    for name, value in stacked.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            found[name] = value
            continue
        prefix, _, kind = name.rpartition(".")
        kinds = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
        for number, expert in enumerate(value):
            for part, rows in zip(kinds, expert.chunk(len(kinds)), strict=True):
                found[f"{prefix}.{number}.{part}.weight"] = rows
    return found


@pytest.mark.parametrize("name", ["llada_moe"])
def test_save_and_load_keep_every_byte(name: str, tmp_path: Path) -> None:
    save_model(tmp_path / "once", small_llada_moe(tmp_path))
    (tmp_path / "once" / "added_tokens.json").write_bytes((tmp_path / "published" / "added_tokens.json").read_bytes())
    save_model(tmp_path / "twice", load_checkpoint(str(tmp_path / "once")))
    published, saved = (load_file(tmp_path / part / "model.safetensors") for part in ("published", "once"))
    assert published.keys() == saved.keys() and all(torch.equal(published[key], saved[key]) for key in published)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "twice" / file).read_bytes()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shared_expert_intermediate_size", 8),
        ("moe_layer_freq", [0, 1]),
        ("moe_router_enable_expert_bias", True),
        ("clip_qkv", 8.0),
        ("partial_rotary_factor", 0.5),
        ("attention_bias", True),
    ],
)
def test_what_the_decoder_does_not_compute_is_refused(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(DareError, match=key):
        load_checkpoint(write_llada_moe(tmp_path, **{key: value}))
