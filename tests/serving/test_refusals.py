"""Every mistake gets OpenAI's error object, and the server goes on."""

import http.client
import json
import time
from typing import Any

import pytest
import torch
from served import running

from dare.errors import DareError
from dare.serving.client import Client
from dare.train.run import load_model

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
WRONG: list[tuple[str, Any, int, str | None, str]] = [
    ("/v1/completions", {"prompt": "x", "max_token": 3}, 400, "max_token", "did you mean 'max_tokens'?"),
    ("/v1/completions", {"prompt": "x", "max_tokens": "many"}, 400, "max_tokens", "max_tokens='many'"),
    ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "max_tokens=0"),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature", "temperature=-1"),
    ("/v1/completions", {"prompt": "x", "n": True}, 400, "n", "n=True"),
    ("/v1/completions", {"prompt": "x", "n": 100}, 400, None, "at most 64 may wait"),
    ("/v1/completions", {"prompt": "x", "stop": ""}, 400, "stop", "stop"),
    ("/v1/completions", {"prompt": "x", "logprobs": 5}, 400, "logprobs", "logprobs=5"),
    ("/v1/completions", {}, 400, "prompt", "field 'prompt' is required"),
    ("/v1/completions", {"prompt": 7}, 400, "prompt", "expected a string"),
    ("/v1/completions", {"prompt": ""}, 400, "prompt", "is empty"),
    ("/v1/completions", {"prompt": []}, 400, "prompt", "is empty"),
    ("/v1/completions", {"prompt": ["x", []]}, 400, "prompt", "expected a string"),
    ("/v1/completions", {"prompt": [1, 999]}, 400, "prompt", "token 999"),
    ("/v1/completions", {"prompt": "fill <|mask|> in"}, 400, "prompt", "mask token"),
    ("/v1/completions", {"prompt": "x" * 4080}, 400, "prompt", "exceed the context of 4096"),
    ("/v1/completions", {"prompt": "x", "max_tokens": 9999}, 400, "prompt", "exceed the context"),
    ("/v1/completions", {"prompt": "x", "model": "gpt"}, 404, "model", "'tiny' is"),
    ("/v1/completions", {"prompt": "x", "temperature": 0, "top_p": 0.5}, 400, None, "top_p has no effect"),
    ("/v1/completions", {"prompt": "x", "decoding": {"stepz": 3}}, 400, "decoding", "did you mean 'steps'?"),
    ("/v1/completions", {"prompt": "x", "decoding": {"steps": "no"}}, 400, "decoding", "steps='no'"),
    ("/v1/completions", {"prompt": "x", "decoding": {"cache": "block"}}, 400, "decoding", "does not fit"),
    ("/v1/completions", {"prompt": "x", "top_k": 2, "decoding": {"top_k": 3}}, 400, "decoding.top_k", "given twice"),
    ("/v1/completions", {"prompt": "x", "max_tokens": 2, "decoding": {"max_new_tokens": 3}}, 400, None, "given twice"),
    ("/v1/completions", {"prompt": "x", "stream_steps": True}, 400, None, "needs stream=true"),
    ("/v1/completions", {"prompt": "x", "noise_keys": [1, 2]}, 400, "noise_keys", "2 noise_keys for 1 prompts"),
    ("/v1/completions", {"prompt": "x", "noise_keys": [1], "seed": 2}, 400, None, "leave out seed"),
    ("/v1/completions", {"prompt": "x", "noise_keys": [2**63]}, 400, "noise_keys", "noise_keys"),
    ("/v1/completions", {"prompt": "x", "seed": 2**64}, 400, "seed", "seed"),
    ("/v1/completions", [1, 2], 400, None, "must be a JSON object"),
    ("/v1/chat/completions", {"messages": []}, 400, "messages", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "messages", "messages.0.content"),
    ("/v1/chat/completions", {"messages": [{"role": "owl", "content": "x"}]}, 400, "messages", "messages.0.role='owl'"),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 2, "max_completion_tokens": 2}, 400, None, "keep one"),
    ("/v1/chat/completions", {**CHAT, "prompt": "x"}, 400, "prompt", "unknown field 'prompt'"),
    ("/v1/embeddings", {"input": "x"}, 404, None, "/v1/embeddings"),
]


def send(client: Client, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())["error"]


@pytest.mark.parametrize(("path", "body", "status", "param", "expected"), WRONG)
def test_a_mistake_is_named(
    masked: Client, path: str, body: Any, status: int, param: str | None, expected: str
) -> None:
    got, error = send(masked, "POST", path, json.dumps(body).encode())
    assert got == status and expected in error["message"], error
    assert error.keys() == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert "Traceback" not in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"prompt": NaN}', b"null"])
def test_a_body_that_is_no_request_is_refused(masked: Client, body: bytes) -> None:
    status, error = send(masked, "POST", "/v1/completions", body)
    assert status == 400 and error["message"]


def test_a_wrong_method_and_a_huge_body_are_refused(masked: Client) -> None:
    assert send(masked, "GET", "/v1/completions", b"")[0] == 405
    assert send(masked, "POST", "/v1/completions", b" " * (16 * 2**20 + 1))[0] == 413


def test_a_full_queue_is_told_at_once_and_the_client_asks_again() -> None:
    with running(load_model("tiny:masked"), rows=1, queue=1) as client:
        slow = {"prompt": "x", "max_tokens": 300, "decoding": {"steps": 300}}
        streams = []
        for count in (1, 2):
            streams.append(client.stream("/v1/completions", {**slow, "stream_steps": True}))
            if count == 1:
                next(streams[0])
            else:
                # submitted without waiting for a first event, which only comes when the other one is done
                connection = http.client.HTTPConnection(client.host, client.port, timeout=30)
                connection.request("POST", "/v1/completions", json.dumps({**slow, "stream": True}))
                connection.getresponse()
        status, error = send(client, "POST", "/v1/completions", json.dumps({"prompt": "x"}).encode())
        assert status == 429 and "try again later" in error["message"] and error["code"] == "queue_full"
        streams[0].close()
        connection.close()
        assert client.post("/v1/completions", {"prompt": "x"})["choices"][0]["finish_reason"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_rows_and_stops_nobody(masked: Client, stream: bool) -> None:
    long = {"prompt": "x", "n": 4, "max_tokens": 2000, "decoding": {"steps": 2000}, "stream": stream}
    connection = http.client.HTTPConnection(masked.host, masked.port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps(long))
    while masked.get("/health")["live"] < 4:
        time.sleep(0.01)
    connection.sock.close()
    answer = masked.post("/v1/completions", {"prompt": "13 07 11=", "seed": 1})
    patience = time.monotonic() + 5
    while masked.get("/health")["live"] and time.monotonic() < patience:
        time.sleep(0.01)
    assert masked.get("/health") == {"status": "ok", "live": 0, "waiting": 0}
    assert masked.post("/v1/completions", {"prompt": "13 07 11=", "seed": 1})["choices"] == answer["choices"]


def test_a_broken_model_is_an_error_and_not_an_answer() -> None:
    broken = load_model("tiny:masked")
    with torch.no_grad():
        next(broken.model.parameters()).fill_(torch.nan)
    with running(broken) as client:
        for _ in range(2):
            status, error = send(client, "POST", "/v1/completions", b'{"prompt": "x"}')
            assert status == 500 and "NaN or infinite logits" in error["message"]
        with pytest.raises(DareError, match="NaN or infinite logits"):
            list(client.stream("/v1/completions", {"prompt": "x"}))
