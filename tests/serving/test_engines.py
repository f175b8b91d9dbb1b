"""Rollouts through a server, behind the call that local rollouts use."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from documented import answering, sglang, vllm
from torch import Tensor

from dare.config import load_config
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.noise import key
from dare.engines.config import EngineConfig
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint
from dare.serving.client import Client
from dare.serving.rollout import rollout
from dare.serving.sglang import row_steps
from dare.train.config import RLConfig
from dare.train.run import load_model
from dare.types import Rollouts

PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12], [13]]
GROUP_B = torch.arange(3)
KEY_B = key(3, "engine", GROUP_B)
EOS = 256


def through(url: str, engine: str, decoding: DecodingConfig, model: str = "tiny:block", **extra: Any) -> Rollouts:
    """Decode on a server, with a model whose weights are nowhere."""
    there = load_model(model, device="meta") if model == "tiny:masked" else load_model(model)
    config = EngineConfig(rollout_engine=engine, rollout_url=url, **extra)  # type: ignore[arg-type]
    return rollout(there.model, config, PROMPTS, decoding, KEY_B, GROUP_B)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 1.0, "steps": 6, "stop_at_eos": False, "top_p": 0.9},
        {"temperature": 1.0, "remask": "running_confidence"},
        {"temperature": 1.0, "threshold": 0.02, "edit_threshold": 0.01},
    ],
)
def test_our_server_rolls_out_what_this_process_does(
    client: Client, checkpoint: Checkpoint, settings: dict[str, Any]
) -> None:
    decoding = DecodingConfig(max_new_tokens=20, block_size=8, **settings)
    here = denoise(checkpoint.model, PROMPTS, decoding, KEY_B, GROUP_B)
    engine = EngineConfig(rollout_engine="dare", rollout_url=client.url, decode_batch=2)
    there = rollout(checkpoint.model, engine, PROMPTS, decoding, KEY_B, GROUP_B)
    assert torch.equal(there.seqs.ids_BT, here.seqs.ids_BT)
    assert torch.equal(there.seqs.response_BT, here.seqs.response_BT)
    torch.testing.assert_close(there.logp_BT, here.logp_BT, atol=1e-4, rtol=0)
    for field in fields(Rollouts):
        one, other = getattr(there, field.name), getattr(here, field.name)
        if isinstance(other, Tensor) and field.name != "logp_BT":
            assert torch.equal(one, other) and one.dtype == other.dtype, field.name
        assert (one is None) == (other is None)


def test_the_weights_may_stay_on_the_server(masked: Client) -> None:
    rollouts = through(masked.url, "dare", DecodingConfig(max_new_tokens=4), model="tiny:masked")
    assert rollouts.length_B.tolist() == [4, 4, 4]


def test_another_model_and_no_server_are_told(masked: Client) -> None:
    with pytest.raises(DareError, match="with block_size None, the model here has 8; serve the same model"):
        through(masked.url, "dare", DecodingConfig())
    with pytest.raises(DareError, match=r"does not answer .*; start the server or correct the URL"):
        through("http://127.0.0.1:9", "dare", DecodingConfig())
    with pytest.raises(DareError, match="write http://HOST:PORT"):
        through("localhost:8000", "dare", DecodingConfig())


ANSWERS = [[7] * 10, [8, 8, EOS], [9] * 9 + [EOS]]
MAPS = [[2, 1, 3, 2, 1, 1, 2, 3, 4, 4], [1, 2, 2], [1] * 7 + [2, 1, 1]]


def test_sglang_gets_its_schema_and_tells_steps() -> None:
    decoding = DecodingConfig(max_new_tokens=10, temperature=0.8, top_k=50, top_p=0.95)
    with answering("/generate", sglang(ANSWERS, MAPS, EOS)) as (url, seen):
        rollouts = through(url, "sglang", decoding, rollout_step_maps=True)
    assert seen[0]["input_ids"] == PROMPTS
    assert seen[0]["sampling_params"][0] == {
        "max_new_tokens": 10,
        "temperature": 0.8,
        "top_k": 50,
        "top_p": 0.95,
        "ignore_eos": False,
        "sampling_seed": int(KEY_B[0]) % 2**31,
    }
    assert rollouts.seqs.ids_BT[1, 9:19].tolist() == [8, 8, *[EOS] * 8]
    assert rollouts.length_B.tolist() == [10, 3, 10]
    # three prompt tokens leave five positions in the first block of eight
    assert rollouts.unmask_step_BT[0, 3:13].tolist() == [1, 0, 2, 1, 0, 3, 4, 5, 6, 6]
    assert rollouts.unmask_step_BT[1, 9:19].tolist() == [0, 1, 1, *[-1] * 7]
    assert rollouts.forwards_B.tolist() == [7, 2, 3]
    assert rollouts.logp_BT[rollouts.seqs.response_BT].isnan().all()


@pytest.mark.parametrize(("asked", "maps"), [(False, MAPS), (True, None)])
def test_what_sglang_does_not_tell_is_not_invented(asked: bool, maps: Any) -> None:
    with answering("/generate", sglang(ANSWERS, maps, EOS)) as (url, seen):
        rollouts = through(url, "sglang", DecodingConfig(max_new_tokens=10), rollout_step_maps=asked)
    assert ("return_step_maps" in seen[0]) == asked
    assert (rollouts.unmask_step_BT == -1).all() and rollouts.forwards_B.isnan().all()


def test_step_maps_run_on_through_the_row() -> None:
    assert row_steps([1, 2, 1, 1, 3], prompt=8, block=4) == ([0, 1, 0, 0, 4], 5)
    assert row_steps([1, 1, 1], prompt=3, block=4) == ([0, 1, 1], 2)


def test_vllm_gets_its_schema() -> None:
    decoding = DecodingConfig(max_new_tokens=10, temperature=1.0)
    with answering("/v1/completions", vllm(ANSWERS, EOS)) as (url, seen):
        rollouts = through(url + "/v1", "vllm", decoding)
    assert seen == [
        {"prompt": PROMPTS, "max_tokens": 10, "temperature": 1.0, "ignore_eos": False, "return_token_ids": True}
    ]
    assert rollouts.seqs.ids_BT[2, 1:11].tolist() == [*[9] * 9, EOS]
    assert rollouts.length_B.tolist() == [10, 3, 10]
    assert (rollouts.unmask_step_BT == -1).all() and rollouts.forwards_B.isnan().all()
    assert rollouts.logp_BT[rollouts.seqs.response_BT].isnan().all()


@pytest.mark.parametrize(
    ("engine", "settings", "expected"),
    [
        ("sglang", {"threshold": 0.9}, "decoding.threshold=0.9 is fixed when SGLang starts"),
        ("sglang", {"steps": 4}, "decoding.steps=4 is fixed"),
        ("vllm", {}, "set decoding.temperature=1.0"),
        ("vllm", {"temperature": 1.0, "top_p": 0.5}, "decoding.top_p=0.5 is fixed when vLLM starts"),
    ],
)
def test_a_setting_that_cannot_be_sent_is_refused(engine: str, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(DareError, match=expected):
        through("http://127.0.0.1:9", engine, DecodingConfig(**settings))


@pytest.mark.parametrize(
    ("engine", "answer", "expected"),
    [
        ("sglang", (200, {"hello": 1}), "another shape than SGLang's"),
        ("sglang", (200, []), "0 answers to 3 prompts"),
        ("sglang", (500, "<html>"), "answers 500 to POST"),
        ("sglang", (400, {"error": {"message": "too long"}}), "answers 400 to POST: too long"),
        (
            "sglang",
            (200, [{"output_ids": [1], "meta_info": {"finish_reason": {"type": "abort", "message": "no memory"}}}] * 3),
            "gave up on a prompt: no memory",
        ),
        (
            "sglang",
            (200, [{"output_ids": [1], "meta_info": {"finish_reason": {"type": "length"}}}] * 3),
            "stopped after 1 of 128 tokens",
        ),
        ("vllm", (200, {"choices": [{"index": 0}]}), "another shape than vLLM's"),
        ("vllm", (200, {"choices": []}), "0 answers to 3 prompts"),
    ],
)
def test_an_odd_answer_is_one_clear_error(engine: str, answer: tuple[int, Any], expected: str) -> None:
    path = "/generate" if engine == "sglang" else "/v1/completions"
    with answering(path, lambda body: answer) as (url, _), pytest.raises(DareError, match=expected):
        through(url, engine, DecodingConfig(temperature=1.0))


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"rollout_engine": "dare", "rollout_url": "http://h:1"}, "training would roll out a policy that is never"),
        ({"rollout_engine": "dare"}, "the others need one"),
        ({"rollout_url": "http://h:1"}, "local takes no URL"),
        ({"rollout_step_maps": True}, "has no effect with rollout_engine=local"),
        ({"rollout_engine": "tgi"}, "rollout_engine='tgi'"),
    ],
)
def test_training_decodes_here(engine: dict[str, Any], expected: str, tmp_path: Path) -> None:
    base = {
        "output": str(tmp_path / "run"),
        "algorithm": {"name": "d1"},
        "decoding": {"temperature": 1.0},
        "engine": engine,
    }
    with pytest.raises(DareError, match=expected):
        load_config(RLConfig, [], base=base)


def test_step_maps_need_blocks() -> None:
    with pytest.raises(DareError, match="tiny has no blocks; set it to false"):
        through("http://h:1", "sglang", DecodingConfig(), model="tiny:masked", rollout_step_maps=True)


def test_without_a_server_this_process_decodes(checkpoint: Checkpoint) -> None:
    decoding = DecodingConfig(max_new_tokens=8, temperature=1.0)
    passes: list[int] = []
    rollouts = rollout(checkpoint.model, EngineConfig(), PROMPTS, decoding, KEY_B, GROUP_B, lambda c: passes.append(1))
    here = denoise(checkpoint.model, PROMPTS, decoding, KEY_B, GROUP_B)
    assert torch.equal(rollouts.seqs.ids_BT, here.seqs.ids_BT) and passes
