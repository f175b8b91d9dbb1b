"""What the decoding settings come to on a model, in words."""

from dare.decoding.config import DecodingConfig
from dare.models.base import ModelSpec

_TRUTHS = {"none": "no cache (exact)", "block": "block cache (exact)"}


def describe(decoding: DecodingConfig, spec: ModelSpec, masks: int | None = None) -> str:
    """Return the effective plan in two lines: canvas and steps; order, sampling and cache.

    ``masks`` is the number of positions to decode where the canvas has given text in between.
    Raises ``DareError`` for a cache that the model's attention cannot use.
    """
    first = [_canvas(decoding, spec, masks), _count(decoding, spec, masks), *_endings(decoding)]
    second = [*_order(decoding), *_sampling(decoding), *_rewriting(decoding), _cache(decoding, spec)]
    return f"{', '.join(first)}\n{', '.join(second)}"


def _canvas(decoding: DecodingConfig, spec: ModelSpec, masks: int | None) -> str:
    length, size = decoding.max_new_tokens, decoding.block_for(spec)
    positions = ("" if masks is None else f"{_plural(masks, 'mask')} over ") + _plural(length, "position")
    if spec.block_size is not None:
        return f"{positions} in the model's own blocks of {size}"
    blocks = -(-length // size)
    return f"{positions} in {'one block' if blocks == 1 else f'{blocks} blocks of {size}'}"


def _count(decoding: DecodingConfig, spec: ModelSpec, masks: int | None) -> str:
    steps, quota = _schedule(decoding, spec)
    if decoding.threshold is not None:
        bound = {None: "at least 1", "minimum": f"at least {quota}", "maximum": f"at most {quota}"}
        return f"every token of probability {decoding.threshold:g} or more ({bound[decoding.steps_bound]} a step)"
    if decoding.factor is not None:
        return f"as many tokens a step as factor {decoding.factor:g} allows (at least 1)"
    if decoding.entropy_bound is not None:
        return f"as many tokens a step as an entropy of {decoding.entropy_bound:g} nats allows (at least 1)"
    if steps is None:
        return f"{quota} a step"
    return f"{_plural(steps, 'step')} a block ({quota} a step)" if masks is None else f"at most {steps} steps a block"


def _schedule(decoding: DecodingConfig, spec: ModelSpec) -> tuple[int | None, str]:
    """Steps of one block, None where they depend on its masks, and the tokens one of them fills."""
    if decoding.schedule == "ascending":
        return None, "1, 2, 4, ... tokens"
    size = spec.block_size or min(decoding.block_for(spec), decoding.max_new_tokens)
    steps = min(size, decoding.steps_for(size))
    mean = "1 token" if steps == size else f"{size / steps:.3g} tokens"
    return steps, f"about {mean}" if decoding.schedule == "timestep" else mean


def _endings(decoding: DecodingConfig) -> list[str]:
    parts = ["stops after the block with an EOS" if decoding.stop_at_eos else "no stop at an EOS"]
    if decoding.eos != "free":
        parts.append("EOS last" if decoding.eos == "last" else "no EOS")
    if decoding.eos_discount is not None:
        parts.append(f"EOS confidence x {decoding.eos_discount:g}")
    return parts


def _order(decoding: DecodingConfig) -> list[str]:
    noise = decoding.order_temperature
    return [f"order {decoding.rule}" + (f" with noise {noise:g}" if noise else "")]


def _sampling(decoding: DecodingConfig) -> list[str]:
    parts = [f"temperature {decoding.temperature:g}" if decoding.temperature else "arg-max (temperature 0)"]
    filters = ("top_k", "top_p", "min_p")
    parts += [f"{name} {value:g}" for name in filters if (value := getattr(decoding, name)) is not None]
    if decoding.repetition_penalty > 1:
        parts.append(f"repetition penalty {decoding.repetition_penalty:g}")
    return [*parts, *([f"guidance {decoding.cfg_scale:g}"] if decoding.cfg_scale else [])]


def _rewriting(decoding: DecodingConfig) -> list[str]:
    if decoding.edit_threshold is not None:
        return [f"edits above probability {decoding.edit_threshold:g}"]
    return [] if decoding.remask == "none" else ["masks doubtful tokens again"]


def _cache(decoding: DecodingConfig, spec: ModelSpec) -> str:
    kind = decoding.cache_for(spec)
    return _TRUTHS.get(kind, f"{kind} cache (approximate)")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
