"""Rollouts from wherever ``engine.rollout_engine`` says: this process, or a server behind the same call."""

from collections.abc import Sequence

from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import Watch, denoise
from dare.engines.config import EngineConfig
from dare.errors import DareError
from dare.models.base import DiffusionLM, ModelSpec
from dare.serving.ours import OurServer
from dare.serving.remote import Remote
from dare.serving.sglang import SGLang
from dare.serving.vllm import VLLM
from dare.types import Rollouts


def rollout(
    model: DiffusionLM,
    engine: EngineConfig,
    prompts: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    key_B: Tensor,
    group_B: Tensor,
    watch: Watch | None = None,
) -> Rollouts:
    """Decode one response per prompt; with a server only ``model.spec`` is read, the weights may be on "meta".

    ``watch`` hears of every pass in this process; a server tells nothing before it is done.
    """
    if engine.rollout_engine == "local":
        return denoise(model, prompts, decoding, key_B, group_B, watch=watch, **engine.decode_limits)
    return connect(engine, model.spec).rollout(prompts, decoding, key_B, group_B)


def connect(engine: EngineConfig, spec: ModelSpec) -> Remote:
    """The server of ``engine.rollout_url``, which must not be "local"."""
    assert engine.rollout_url is not None
    if engine.rollout_engine == "dare":
        return OurServer(engine.rollout_url, spec, engine.decode_batch)
    if engine.rollout_engine == "vllm":
        return VLLM(engine.rollout_url, spec, engine.decode_batch)
    if engine.rollout_step_maps and spec.block_size is None:
        raise DareError(
            f"engine.rollout_step_maps=true: SGLang counts steps block by block, {spec.family} has no blocks; set it "
            "to false"
        )
    return SGLang(engine.rollout_url, spec, engine.decode_batch, spec.block_size if engine.rollout_step_maps else None)
