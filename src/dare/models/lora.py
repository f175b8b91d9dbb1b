"""Low-rank adapters (LoRA, arXiv 2106.09685) through peft: few trained weights beside one frozen copy of the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import nn

from dare.config import Config
from dare.diffusion.noise import key
from dare.errors import DareError, nearest
from dare.models.linear import Linear
from dare.models.quantize import quantize
from dare.models.transformer import Transformer


class LoraSettings(Config):
    """A trained update of rank ``rank`` and scale ``alpha / rank`` on the projections named in ``targets``.

    ``targets`` None: every linear projection of attention and MLP the model has; stacked experts have none.
    ``four_bit`` holds the frozen weights in 4 bits (QLoRA, arXiv 2305.14314); it needs a GPU and bitsandbytes.
    """

    rank: PositiveInt = 16
    alpha: float = Field(32.0, gt=0)
    dropout: float = 0.0
    targets: tuple[str, ...] | None = Field(None, min_length=1)
    four_bit: bool = False

    @field_validator("dropout")
    @classmethod
    def _deterministic(cls, value: float) -> float:
        if value != 0:
            raise ValueError("must be 0: the gradient of several views runs each forward pass twice and needs it equal")
        return value


def add_adapter(
    model: Transformer, settings: LoraSettings, seed: int, base: str = "", revision: str | None = None
) -> Transformer:
    """Freeze ``model`` and add an adapter that changes nothing yet; its weights depend on ``seed`` alone.

    ``base`` and ``revision`` say in a saved adapter which model it belongs to. The model is changed in place and
    returned. Raises ``DareError`` for a target the model lacks, or where peft or what ``four_bit`` needs is missing.
    """
    known = {name.rpartition(".")[2] for name, module in model.blocks.named_modules() if isinstance(module, Linear)}
    targets = settings.targets or sorted(known)
    for target in targets:
        if target not in known:
            raise DareError(f"model.lora.targets: {target!r} is no linear projection here; {nearest(target, known)}")
    config = peft_library().LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(targets),
        base_model_name_or_path=base,
        revision=revision,
    )
    return inject(quantize(model) if settings.four_bit else model, config, seed)


def has_adapter(model: nn.Module) -> bool:
    """Tell whether ``model`` carries an adapter."""
    return hasattr(model, "peft_config")


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Within this context ``model`` computes exactly what it did before ``add_adapter``."""
    layers = _layers(model)
    for layer in layers.values():
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers.values():
            layer.enable_adapters(True)


def merge_adapter(model: Transformer) -> Transformer:
    """Add the adapter into the weights and remove it: an ordinary model again, trainable, names as before."""
    for name, layer in _layers(model).items():
        layer.merge(safe_merge=True)
        model.set_submodule(name, layer.get_base_layer())
    del model.peft_config
    return model.requires_grad_(True)


def inject(model: Transformer, config: Any, seed: int) -> Transformer:
    """Add the adapter of a ``peft.LoraConfig`` in place; prefer ``add_adapter``."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(key(seed, "adapter")))
        peft_library().inject_adapter_in_model(config, model)
    for weight in adapter_weights(model).values():
        # steps of the optimiser would vanish in bfloat16
        weight.data = weight.data.to(torch.promote_types(weight.dtype, torch.float32))
    return model


def adapter_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the adapter's weights under the names of peft's files."""
    named = model.named_parameters()
    return {f"base_model.model.{name.replace('.default', '')}": w for name, w in named if ".lora_" in name}


def peft_library() -> Any:
    """Return the peft package, an optional dependency that takes seconds to import; ``DareError`` if it is missing."""
    try:
        import peft
    except ImportError as error:
        raise DareError('LoRA needs the peft package; install it: pip install "peft>=0.17"') from error
    return peft


def _layers(model: nn.Module) -> dict[str, Any]:
    kind = peft_library().tuners.lora.LoraLayer
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}
