"""Stand-ins for SGLang and vLLM: they refuse what the documented schemas refuse and answer in the documented shape.

Field names and types are transcribed from sgl-project/sglang ``python/sglang/srt/managers/io_struct.py``
(``GenerateReqInput``; ``return_step_maps`` from pull request 27943), ``python/sglang/srt/sampling/sampling_params.py``,
and vllm-project/vllm ``vllm/entrypoints/openai/completion/protocol.py``, ``vllm/sampling_params.py``; of their many
fields only those that concern text are allowed here.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

Respond = Callable[[dict[str, Any]], tuple[int, Any]]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SamplingParams(Strict):
    max_new_tokens: int | None = 128
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    n: int = 1
    sampling_seed: int | None = None


class GenerateReqInput(Strict):
    text: str | list[str] | None = None
    input_ids: list[list[int]] | list[int] | None = None
    sampling_params: list[SamplingParams] | SamplingParams | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    stream: bool = False
    return_step_maps: bool | list[bool] = False


class CompletionRequest(Strict):
    model: str | None = None
    prompt: list[int] | list[list[int]] | str | list[str] | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int = 1
    seed: int | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    ignore_eos: bool = False
    return_token_ids: bool | None = None


def sglang(answers: list[list[int]], maps: list[list[int]] | None, eos: int) -> Respond:
    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        try:
            request = GenerateReqInput.model_validate(body)
        except ValidationError as error:
            return 400, {"error": {"message": str(error)}}
        outputs = []
        assert isinstance(request.input_ids, list) and isinstance(request.sampling_params, list)
        for number, prompt in enumerate(request.input_ids):
            assert isinstance(prompt, list)
            ids = answers[number]
            ended = ids[-1] == eos
            meta: dict[str, Any] = {
                "id": f"request-{number}",
                "finish_reason": {"type": "stop", "matched": eos} if ended else {"type": "length", "length": len(ids)},
                "prompt_tokens": len(prompt),
                "completion_tokens": len(ids),
                "cached_tokens": 0,
            }
            if request.return_step_maps and maps is not None:
                meta["step_maps"] = maps[number]
            outputs.append({"text": "...", "output_ids": ids, "meta_info": meta})
        return 200, outputs

    return respond


def vllm(answers: list[list[int]], eos: int) -> Respond:
    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        try:
            request = CompletionRequest.model_validate(body)
        except ValidationError as error:
            return 400, {"error": {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}}
        if request.temperature != 1.0 or request.seed is not None or (request.min_p or 0) > 0:
            message = (
                "The temperature, min_p, seed ... sampling parameters are not yet supported with diffusion models."
            )
            return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
        choices = [
            {
                "index": number,
                "text": "...",
                "logprobs": None,
                "finish_reason": "stop" if ids[-1] == eos else "length",
                "stop_reason": None,
                "token_ids": ids if request.return_token_ids else None,
                "prompt_token_ids": None,
            }
            for number, ids in enumerate(answers)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
        # the order of choices is not part of the schema
        return 200, {**head, "choices": choices[::-1], "usage": usage}

    return respond


@contextmanager
def answering(path: str, respond: Respond) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve ``respond`` at ``path``; yields the URL and the requests that came."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            status, content = respond(body) if self.path == path else (404, {"detail": "Not Found"})
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
