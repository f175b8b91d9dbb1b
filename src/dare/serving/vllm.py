"""Rollouts from a vLLM server (DiffusionGemma), through its OpenAI-compatible ``POST /v1/completions``.

Written against vllm-project/vllm: ``vllm/entrypoints/openai/completion/protocol.py`` (``CompletionRequest``,
``CompletionResponse``) and ``vllm/sampling_params.py`` (``_validate_diffusion``: temperature must be 1, a seed is
refused, because a diffusion model has its own temperature schedule). No request was made to a running vLLM server.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.serving.client import Client
from dare.serving.remote import Ids, Row, assemble, batches, only, untold
from dare.types import Rollouts


class _Choice(BaseModel):
    index: int
    token_ids: list[int]
    finish_reason: str


class _Completion(BaseModel):
    choices: list[_Choice]


class VLLM:
    """A ``Remote``. Steps are -1, log-probabilities and passes NaN: a canvas is rewritten until it settles, and the
    server tells none of it. Keys are not sent, so that two calls differ.
    """

    def __init__(self, url: str, ids: Ids, batch: int):
        self.client, self.ids, self.batch = Client(url), ids, batch

    def rollout(
        self, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor, group_B: Tensor
    ) -> Rollouts:
        """See ``Engine.rollout``; only ``max_new_tokens`` and ``stop_at_eos`` can be chosen."""
        if decoding.temperature != 1:
            raise DareError(
                f"decoding.temperature={decoding.temperature}: vLLM decodes diffusion models with a temperature "
                "schedule of their own; set decoding.temperature=1.0"
            )
        only(decoding, {"max_new_tokens", "stop_at_eos", "temperature"}, "is fixed when vLLM starts")
        rows: list[Row] = []
        for part in batches(len(prompts), self.batch):
            asked = [list(prompt) for prompt in prompts[part]]
            body = {
                "prompt": asked,
                "max_tokens": decoding.max_new_tokens,
                "temperature": 1.0,
                "ignore_eos": not decoding.stop_at_eos,
                "return_token_ids": True,
            }
            choices = self._choices(self.client.post("/v1/completions", body), len(asked))
            rows += [
                untold(c.token_ids, c.finish_reason == "stop", decoding.max_new_tokens, self.ids.eos_ids[0])
                for c in choices
            ]
        return assemble(prompts, rows, self.ids, key_B, group_B)

    def _choices(self, answer: Any, count: int) -> list[_Choice]:
        try:
            choices = sorted(_Completion.model_validate(answer).choices, key=lambda choice: choice.index)
        except ValidationError as error:
            reason = " ".join(str(error).split())[:200]
            raise DareError(f"{self.client.url} answers in another shape than vLLM's: {reason}") from error
        if [choice.index for choice in choices] != list(range(count)):
            raise DareError(f"{self.client.url} gave {len(choices)} answers to {count} prompts")
        return choices
