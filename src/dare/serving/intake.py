"""From a checked request to rows that can be decoded."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from transformers import PreTrainedTokenizerBase

from dare.config import load_config
from dare.decoding.config import DecodingConfig
from dare.diffusion.noise import key
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.models.chat import encode_prompt
from dare.serving.protocol import ApiError, ChatRequest, CompletionRequest, Request
from dare.serving.text import Ending

_SAME = {"max_tokens": "max_new_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
_OFF = {("top_p", 1.0), ("top_k", 0), ("top_k", -1)}
"""How clients write that a filter is not wanted."""


@dataclass(frozen=True)
class Order:
    """What to decode: ``rows`` are the answers' prompts and noise keys, in the order of the choices."""

    request: Request
    prompts: list[list[int]]
    decoding: DecodingConfig
    seed: int | None
    rows: list[tuple[list[int], int]]
    ending: Ending
    mask_id: int


@dataclass(frozen=True)
class Served:
    """The model on offer and the settings that hold where a request says nothing."""

    name: str
    spec: ModelSpec
    tokenizer: PreTrainedTokenizerBase
    decoding: DecodingConfig

    def order(self, request: Request) -> Order:
        """Work out prompts, settings and noise; ``ApiError`` says what does not fit this model."""
        if request.model not in (None, self.name):
            raise ApiError(404, f"model {request.model!r} is not served; {self.name!r} is", "model", "model_not_found")
        decoding = self._decoding(request)
        prompts = self._prompts(request)
        for prompt in prompts:
            self._check(prompt, decoding.max_new_tokens)
        seed, rows = _noise(request, prompts)
        ending = Ending(self.tokenizer, self.spec.eos_ids, request.stops)
        return Order(request, prompts, decoding, seed, rows, ending, self.spec.mask_id)

    def _decoding(self, request: Request) -> DecodingConfig:
        given = {name: getattr(request, name) for name in _SAME}
        if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
            given["max_tokens"] = request.max_completion_tokens
        settings = {_SAME[name]: value for name, value in given.items() if value is not None}
        for name in settings.keys() & request.decoding.keys():
            raise ApiError(400, f"decoding.{name} is given twice; keep one of them", f"decoding.{name}")
        settings = {name: None if (name, value) in _OFF else value for name, value in settings.items()}
        settings |= request.decoding
        merged = self.decoding.model_dump() | self._scaled_steps(settings) | settings
        try:
            decoding = load_config(DecodingConfig, [], base=merged)
            decoding.cache_for(self.spec)
        except DareError as error:
            raise ApiError(400, str(error), "decoding" if request.decoding else None) from error
        return decoding

    def _scaled_steps(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The server's steps are meant for its own length; another length keeps their number of tokens per step."""
        length, steps = settings.get("max_new_tokens"), self.decoding.steps
        if steps is None or not isinstance(length, int):
            return {}
        return {"steps": max(1, ceil(steps * length / self.decoding.max_new_tokens))}

    def _prompts(self, request: Request) -> list[list[int]]:
        if isinstance(request, ChatRequest):
            turns = [{"role": turn.role, "content": turn.text} for turn in request.messages]
            try:
                return [encode_prompt(self.tokenizer, turns)]
            except DareError as error:
                raise ApiError(400, str(error), "messages") from error
        assert isinstance(request, CompletionRequest)
        prompts = _several(request.prompt)
        if not prompts or not all(prompts):
            raise ApiError(400, "prompt is empty; give at least one token", "prompt")
        return [self._ids(part) if isinstance(part, str) else list(part) for part in prompts]

    def _ids(self, text: str) -> list[int]:
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        assert isinstance(ids, list)
        return ids

    def _check(self, prompt: Sequence[int], response: int) -> None:
        room = self.spec.context - response
        if len(prompt) > room:
            raise ApiError(
                400,
                f"prompt of {len(prompt)} tokens and answer of {response} exceed the context of {self.spec.context}; "
                "shorten the prompt or lower max_tokens",
                "prompt",
                "context_length_exceeded",
            )
        outside = [token for token in prompt if not 0 <= token < self.spec.vocab_size]
        if outside:
            raise ApiError(400, f"token {outside[0]} is not in the vocabulary of {self.spec.vocab_size}", "prompt")
        if self.spec.mask_id in prompt:
            raise ApiError(400, "the prompt holds the mask token, which stands for what is to be written", "prompt")


def _noise(request: Request, prompts: list[list[int]]) -> tuple[int | None, list[tuple[list[int], int]]]:
    """The noise follows from seed and sample alone: a prompt's answers do not depend on what else is asked."""
    given = request.noise_keys if isinstance(request, CompletionRequest) else None
    if given is not None:
        if len(given) != len(prompts):
            raise ApiError(400, f"{len(given)} noise_keys for {len(prompts)} prompts; give one each", "noise_keys")
        return None, list(zip(prompts, given, strict=True))
    seed = secrets.randbits(31) if request.seed is None else request.seed
    keys = [int(key(seed, "serve", sample)) for sample in range(request.n)]
    return seed, [(prompt, noise) for prompt in prompts for noise in keys]


def _several(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(part, int) for part in prompt):
        return [prompt]  # type: ignore[list-item]
    return list(prompt)  # type: ignore[arg-type]
