"""What a request gets: alone, beside others, streamed, stopped, several times."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from served import DEFAULTS

from dare.decoding.denoise import denoise
from dare.diffusion.noise import key
from dare.models.chat import encode_prompt, response_texts
from dare.models.checkpoint import Checkpoint
from dare.serving.client import Client

TOLD: dict[str, Any] = {"return_token_ids": True, "return_step_maps": True, "logprobs": 0}
VARIED: list[dict[str, Any]] = [
    {"prompt": "13 07 11=", "seed": 1},
    {"prompt": "13 07 11=", "seed": 2, "temperature": 1.0},
    {"prompt": "13 07 11=", "seed": 3, "temperature": 1.0},
    {"prompt": "a", "seed": 3, "temperature": 1.0, "max_tokens": 7},
    {"prompt": "long " * 30, "seed": 4, "temperature": 1.0},
    {"prompt": "long " * 5, "seed": 5, "temperature": 0.7, "max_tokens": 40, "top_p": 0.9},
    {"prompt": "z", "seed": 6, "temperature": 0.7, "max_tokens": 40, "top_k": 5, "n": 3},
    {"prompt": ["first", "second one"], "seed": 7, "temperature": 1.0, "n": 2},
    {"prompt": "again", "seed": 8, "temperature": 1.0, "decoding": {"remask": "running_confidence"}},
    {"prompt": "threshold", "seed": 9, "temperature": 1.0, "decoding": {"steps": None, "threshold": 0.02}},
]


def ask(client: Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", body)
    assert isinstance(answer, dict)
    return answer


def events(client: Client, **body: Any) -> list[dict[str, Any]]:
    return list(client.stream("/v1/completions", body))


def same(first: dict[str, Any], second: dict[str, Any]) -> None:
    for one, other in zip(first["choices"], second["choices"], strict=True):
        logps = [choice["logprobs"].pop("token_logprobs") for choice in (one, other)]
        assert logps[0] == pytest.approx(logps[1], abs=1e-4)
        assert one == other
    assert first["usage"] == second["usage"]


def test_parallel_requests_give_what_single_ones_give(client: Client) -> None:
    alone = [ask(client, **body, **TOLD) for body in VARIED]
    with ThreadPoolExecutor(2 * len(VARIED)) as pool:
        together = list(pool.map(lambda body: ask(client, **body, **TOLD), [*VARIED, *reversed(VARIED)]))
    for answer, first, second in zip(alone, together, reversed(together), strict=False):
        for parallel in (first, second):
            same(answer | {"choices": [{**c, "logprobs": dict(c["logprobs"])} for c in answer["choices"]]}, parallel)


def test_an_answer_is_that_of_the_decoder(client: Client, checkpoint: Checkpoint) -> None:
    turns = [{"role": "user", "content": "13 07 11="}]
    answer = client.post(
        "/v1/chat/completions",
        {
            "messages": turns,
            "seed": 5,
            "decoding": {"temperature": 1.0},
            "logprobs": True,
            "return_step_maps": True,
            "return_token_ids": True,
        },
    )
    assert checkpoint.tokenizer is not None
    prompt = encode_prompt(checkpoint.tokenizer, turns)
    sample_B = torch.arange(1)
    decoding = DEFAULTS.model_copy(update={"temperature": 1.0})
    expected = denoise(checkpoint.model, [prompt], decoding, key(5, "serve", sample_B), sample_B)
    counted = expected.counted_BT[0]
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": response_texts(checkpoint.tokenizer, expected)[0]}
    assert choice["token_ids"] == expected.seqs.ids_BT[0][counted].tolist()
    assert choice["step_maps"] == expected.unmask_step_BT[0][counted].tolist()
    logps = [token["logprob"] for token in choice["logprobs"]["content"]]
    assert logps == pytest.approx(expected.logp_BT[0][counted].tolist(), abs=1e-4)
    assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_samples_follow_from_the_seed_and_their_number(client: Client) -> None:
    three = ask(client, prompt="x", seed=11, temperature=1.0, n=3)["choices"]
    assert [choice["index"] for choice in three] == [0, 1, 2]
    assert len({choice["text"] for choice in three}) == 3
    assert ask(client, prompt="x", seed=11, temperature=1.0)["choices"][0]["text"] == three[0]["text"]
    unseeded = ask(client, prompt="x", temperature=1.0)
    repeated = ask(client, prompt="x", temperature=1.0, seed=unseeded["seed"])
    assert unseeded["choices"] == repeated["choices"]
    assert ask(client, prompt="x", temperature=1.0)["choices"] != unseeded["choices"]


def test_text_and_token_ids_ask_the_same(client: Client, checkpoint: Checkpoint) -> None:
    assert checkpoint.tokenizer is not None
    ids = [checkpoint.tokenizer(text)["input_ids"] for text in ("one", "two")]
    texts = ask(client, prompt=["one", "two"], seed=0)["choices"]
    assert ask(client, prompt=ids, seed=0)["choices"] == texts
    assert ask(client, prompt=ids[0], seed=0)["choices"][0] == texts[0]


@pytest.mark.parametrize("extra", [{}, {"eos": "never"}, {"eos": "never", "remask": "running_confidence"}])
def test_chunks_join_to_the_text(client: Client, extra: dict[str, Any]) -> None:
    body = {"prompt": "13 07 11=", "n": 3, "seed": 2, "temperature": 1.0, "decoding": extra, **TOLD}
    whole = ask(client, **body)
    stream = events(client, **body, stream_options={"include_usage": True})
    assert stream[-1]["choices"] == [] and stream[-1]["usage"] == whole["usage"]
    assert {event["object"] for event in stream} == {"text_completion"}
    for choice in whole["choices"]:
        chunks = [c for event in stream for c in event["choices"] if c["index"] == choice["index"]]
        assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
        assert [chunk["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert {**chunks[-1], "text": choice["text"]} == choice
        assert len(chunks) > 1 or not extra


def test_chat_chunks_name_the_role_first(client: Client) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "seed": 3}
    stream = list(client.stream("/v1/chat/completions", body))
    whole = client.post("/v1/chat/completions", body)["choices"][0]
    deltas = [event["choices"][0]["delta"] for event in stream]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == whole["message"]["content"]
    assert {event["object"] for event in stream} == {"chat.completion.chunk"}


def test_steps_show_the_canvas_after_each_pass(client: Client) -> None:
    body = {"prompt": "13 07 11=", "seed": 2, "temperature": 1.0}
    canvas = ask(client, **body, return_canvas=True)["choices"][0]["canvas"]
    shown = [event["choices"][0]["denoising"] for event in events(client, **body, stream_steps=True)]
    assert [state["step"] for state in shown] == list(range(1, canvas["forwards"] + 1))
    for state in shown[:-1]:
        decided = [token is not None for token in state["tokens"]]
        assert decided == [0 <= step < state["step"] for step in canvas["steps"]]
    assert None not in shown[-1]["tokens"]


def test_a_stop_string_ends_the_answer_before_it(client: Client) -> None:
    body = {"prompt": "13 07 11=", "seed": 2, "temperature": 1.0, "decoding": {"eos": "never", "block_size": 4}}
    free = ask(client, **body, return_token_ids=True, return_canvas=True)["choices"][0]
    stop = next(free["text"][at : at + 2] for at in range(3, 15) if "\ufffd" not in free["text"][at : at + 2])
    expected = free["text"][: free["text"].index(stop)]
    stopped = ask(client, **body, stop=["never there", stop], return_token_ids=True, return_canvas=True)["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (expected, "stop")
    assert stopped["token_ids"] == free["token_ids"][: len(stopped["token_ids"])]
    assert len(stopped["token_ids"]) < len(free["token_ids"])
    assert stopped["canvas"]["forwards"] < free["canvas"]["forwards"]
    chunks = events(client, **body, stop=stop)
    assert "".join(event["choices"][0]["text"] for event in chunks) == expected
    assert free["finish_reason"] == "length"


def test_the_servers_steps_keep_their_tokens_per_step(client: Client) -> None:
    for length in (8, 24, 48):
        canvas = ask(client, prompt="12345678", max_tokens=length, return_canvas=True)["choices"][0]["canvas"]
        assert canvas["forwards"] == length // 2
    canvas = ask(client, prompt="12345678", max_tokens=8, decoding={"steps": 8}, return_canvas=True)["choices"][0]
    assert canvas["canvas"]["forwards"] == 8


def test_the_model_is_described(client: Client, checkpoint: Checkpoint) -> None:
    (model,) = client.get("/v1/models")["data"]
    assert model["id"] == "tiny" and model["vocab_size"] == checkpoint.model.spec.vocab_size
    assert model["decoding"] == DEFAULTS.model_dump(mode="json")
    assert client.get("/health") == {"status": "ok", "live": 0, "waiting": 0}
