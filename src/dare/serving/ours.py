"""Rollouts from ``dare serve``: the same tokens, steps and log-probabilities as in this process."""

from collections.abc import Sequence

from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.serving.client import Client
from dare.serving.remote import Row, assemble, batches
from dare.types import Rollouts


class OurServer:
    """A ``Remote``; raises ``DareError`` where the server's model has other tokens than ``spec``."""

    def __init__(self, url: str, spec: ModelSpec, batch: int):
        self.client, self.spec, self.batch = Client(url), spec, batch
        served = self.client.get("/v1/models")["data"][0]
        for name in ("vocab_size", "mask_id", "block_size"):
            if served.get(name) != getattr(spec, name):
                raise DareError(
                    f"engine.rollout_url={url!r} serves {served['id']!r} with {name} {served.get(name)}, the model "
                    f"here has {getattr(spec, name)}; serve the same model"
                )

    def rollout(
        self, prompts: Sequence[Sequence[int]], decoding: DecodingConfig, key_B: Tensor, group_B: Tensor
    ) -> Rollouts:
        """See ``Engine.rollout``; keys and all settings travel along, so nothing is left to the server."""
        keys: list[int] = key_B.tolist()
        rows: list[Row] = []
        for part in batches(len(prompts), self.batch):
            body = {
                "prompt": [list(prompt) for prompt in prompts[part]],
                "noise_keys": keys[part],
                "decoding": decoding.model_dump(mode="json"),
                "return_canvas": True,
            }
            choices = self.client.post("/v1/completions", body)["choices"]
            rows += [Row(**choice["canvas"]) for choice in choices]
        return assemble(prompts, rows, self.spec, key_B, group_B)
