"""Rollouts from an SGLang server (LLaDA2.x, SDAR), through its native ``POST /generate``.

Written against sgl-project/sglang: ``python/sglang/srt/managers/io_struct.py`` (``GenerateReqInput``),
``python/sglang/srt/sampling/sampling_params.py`` (``SamplingParams``), ``docs/basic_usage/sampling_params.md`` and pull
request 27943 (``return_step_maps``, per-request sampling). Releases without that pull request decode by arg-max
whatever the temperature, and ignore ``return_step_maps``. No request was made to a running SGLang server.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.serving.client import Client
from dare.serving.remote import Ids, Row, assemble, batches, only, untold
from dare.types import Rollouts

_SENT = {"max_new_tokens", "stop_at_eos", "temperature", "top_k", "top_p", "min_p"}


class _FinishReason(BaseModel):
    type: str
    message: str | None = None


class _Meta(BaseModel):
    finish_reason: _FinishReason
    step_maps: list[int] | None = None


class _Output(BaseModel):
    model_config = ConfigDict(extra="ignore")

    output_ids: list[int]
    meta_info: _Meta


class SGLang:
    """A ``Remote``. Log-probabilities are NaN: SGLang's diffusion path records none.

    ``step_block`` asks for step maps and is the model's block size; the server must run the LowConfidence algorithm.
    Then ``unmask_step_BT`` and ``forwards_B`` count the passes that decided something, which leaves out those that
    only store keys and values; otherwise they are -1 and NaN. Keys travel as ``sampling_seed``, which the server may
    ignore.
    """

    def __init__(self, url: str, ids: Ids, batch: int, step_block: int | None = None):
        self.client, self.ids, self.batch, self.step_block = Client(url), ids, batch, step_block

    def rollout(
        self, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor, group_B: Tensor
    ) -> Rollouts:
        """See ``Engine.rollout``; settings that SGLang fixes at its start are refused."""
        only(decoding, _SENT, "is fixed when SGLang starts (--dllm-algorithm-config)")
        keys: list[int] = key_B.tolist()
        rows: list[Row] = []
        for part in batches(len(prompts), self.batch):
            asked = [list(prompt) for prompt in prompts[part]]
            params = [_sampling(decoding, key) for key in keys[part]]
            body: dict[str, Any] = {"input_ids": asked, "sampling_params": params}
            if self.step_block is not None:
                body["return_step_maps"] = True
            outputs = self._outputs(self.client.post("/generate", body), len(asked))
            rows += [self._row(prompt, output, decoding) for prompt, output in zip(asked, outputs, strict=True)]
        return assemble(prompts, rows, self.ids, key_B, group_B)

    def _outputs(self, answer: Any, count: int) -> list[_Output]:
        try:
            outputs = [_Output.model_validate(output) for output in answer]
        except (ValidationError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DareError(f"{self.client.url}/generate answers in another shape than SGLang's: {reason}") from error
        if len(outputs) != count:
            raise DareError(f"{self.client.url}/generate gave {len(outputs)} answers to {count} prompts")
        return outputs

    def _row(self, prompt: Sequence[int], output: _Output, decoding: DecodingConfig) -> Row:
        end, ids, length = output.meta_info.finish_reason, output.output_ids, decoding.max_new_tokens
        if end.type not in ("stop", "length"):
            raise DareError(f"{self.client.url} gave up on a prompt: {end.message or end.type}")
        row = untold(ids, end.type == "stop", length, self.ids.eos_ids[0])
        maps = output.meta_info.step_maps
        if self.step_block is None or maps is None:
            return row
        if len(maps) != len(ids):
            raise DareError(f"{self.client.url} gave {len(maps)} step_maps for {len(ids)} tokens; expected one each")
        steps, forwards = row_steps(maps, len(prompt), self.step_block)
        return row._replace(steps=[*steps, *row.steps[len(steps) :]][:length], forwards=forwards)


def row_steps(maps: Sequence[int], prompt: int, block: int) -> tuple[list[int], int]:
    """Turn steps that count from 1 in every block into steps that count from 0 through the row, and their number."""
    steps: list[int] = []
    before = current = 0
    for place, step in enumerate(maps, start=prompt):
        if place % block == 0:
            before, current = before + current, 0
        current = max(current, step)
        steps.append(before + step - 1)
    return steps, before + current


def _sampling(decoding: DecodingConfig, key: int) -> dict[str, Any]:
    filters = {"top_k": decoding.top_k, "top_p": decoding.top_p, "min_p": decoding.min_p}
    return {
        "max_new_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature,
        "ignore_eos": not decoding.stop_at_eos,
        "sampling_seed": key % 2**31,
        **{name: value for name, value in filters.items() if value is not None},
    }
