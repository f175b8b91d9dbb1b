"""Check a run and say what it will do, before any compute."""

from rich.console import Console
from rich.table import Table

from dare.config import load_config
from dare.data.source import Items
from dare.errors import DareError, nearest
from dare.models.checkpoint import Checkpoint
from dare.models.lora import has_adapter
from dare.models.probe import check_visibility
from dare.models.transformer import Transformer
from dare.models.value import ValueModel
from dare.plan_memory import activations
from dare.sketch import is_sketchy, sketch
from dare.train.config import DPORunConfig, RLConfig, RunConfig, SFTConfig
from dare.train.run import load_rows, starting_model

SCHEMAS: dict[str, type[RunConfig]] = {"sft": SFTConfig, "dpo": DPORunConfig, "rl": RLConfig}


def plan(verb: str, layers: list[str]) -> None:
    """Load settings, model and training rows of ``dare VERB``, then print ids, sizes and the work ahead."""
    if verb not in SCHEMAS:
        raise DareError(f"plan {verb!r}: no such training verb; {nearest(verb, SCHEMAS)}")
    config = load_config(SCHEMAS[verb], layers)
    sketched = is_sketchy(config.model.path)
    checkpoint, missing = sketch(config) if sketched else (starting_model(config, device="cpu"), {})
    known = checkpoint.tokenizer is not None
    items = load_rows(config, checkpoint, answers=verb == "sft", pairs=verb == "dpo") if known else None
    table = Table("plan", f"dare {verb}", title=None)
    for name, value in {
        **_model(checkpoint),
        **(missing or {"probe": check_visibility(checkpoint.model)}),
        **(_data(items, checkpoint, config.decoding.max_new_tokens) if items else {}),
        **_work(config, items),
        **_memory(config, checkpoint, items),
    }.items():
        table.add_row(name, value)
    Console().print(table)


def _model(checkpoint: Checkpoint) -> dict[str, str]:
    spec = checkpoint.model.spec
    return {
        "model": f"{spec.family}, {_parameters(checkpoint) / 1e6:.2f} M parameters, {spec.visibility}",
        "ids": f"mask {spec.mask_id}, end {spec.eos_ids}, pad {spec.pad_id}, vocabulary {spec.vocab_size}",
    }


def _data(items: Items, checkpoint: Checkpoint, room: int) -> dict[str, str]:
    lengths = sorted(len(item.prompt_ids) for item in items.rows)
    first, tokenizer = items.rows[0], checkpoint.tokenizer
    assert tokenizer is not None
    expected = tokenizer.decode(first.answer_ids) if first.answer_ids else str(first.example.columns["ground_truth"])
    return {
        "rows": items.summary(),
        "prompt tokens": f"median {lengths[len(lengths) // 2]}, longest {lengths[-1]}; response {room}",
        "first prompt, as the model reads it": repr(tokenizer.decode(first.prompt_ids)[-200:]),
        "first answer": repr(expected[:120]),
    }


def _work(config: RunConfig, items: Items | None) -> dict[str, str]:
    train, decoding = config.train, config.decoding
    lines = {}
    if isinstance(config, RLConfig):
        lines["algorithm"] = ", ".join(f"{key}={value}" for key, value in config.algorithm.model_dump().items())
    if isinstance(config, SFTConfig):
        lines["objective"] = ", ".join(f"{key}={value}" for key, value in config.objective.model_dump().items())
    if isinstance(config, DPORunConfig):
        lines["preference"] = ", ".join(f"{key}={value}" for key, value in config.dpo.model_dump().items())
    lines["decoding"] = ", ".join(f"{key}={value}" for key, value in decoding.model_dump(exclude_none=True).items())
    epochs = f" ({train.steps * train.batch / len(items.rows):.2f} epochs)" if items else ""
    lines["work"] = f"{train.steps} steps of {_sequences(config)} sequences{epochs}, lr {config.optim.lr}"
    return lines


def _memory(config: RunConfig, checkpoint: Checkpoint, items: Items | None) -> dict[str, str]:
    """What parameters, gradients and both Adam moments take, and what the largest training pass adds to it."""
    bytes_each = {"float32": 4, "bfloat16": 2, "float64": 8}[config.engine.precision]
    model, trained = checkpoint.model, _parameters(checkpoint, trained=True)
    held = _parameters(checkpoint) + 3 * trained
    if _needs_reference(config) and not has_adapter(model):
        held += _parameters(checkpoint)
    value = _value_model(config, model) * bytes_each / 1e9
    return {
        "weights in memory": f"{held * bytes_each / 1e9:.3f} GB, {trained / 1e6:.2f} M parameters trained",
        **({"value model in memory": f"{value:.3f} GB"} if value else {}),
        "activations in memory": _activations(config, model, items),
    }


def _activations(config: RunConfig, model: Transformer, items: Items | None) -> str:
    if model.embed.weight.is_meta and model.arch.experts:
        return "known once the weights are there, which choose the experts"
    room, rows = config.decoding.max_new_tokens, min(config.engine.micro_batch, _sequences(config))
    longest = max(len(item.prompt_ids) for item in items.rows) if items else config.task.max_prompt_tokens
    width = longest + room
    added = activations(model, rows, width, rows * room)
    states, logits = added.states / 1e9, added.logits / 1e9
    return (
        f"up to {states + logits:.3f} GB for {rows} sequences of {width} tokens, "
        f"{logits:.3f} GB of it for {rows * room} masked ones' logits"
        + ("; attention is taken as not fused" if model.embed.weight.is_meta else "")
    )


def _value_model(config: RunConfig, policy: Transformer) -> int:
    """Parameters of a value model with its gradients and both moments; 0 where the algorithm has none."""
    if not isinstance(config, RLConfig) or config.algorithm.critic_lr is None:
        return 0
    model = ValueModel(policy)
    return sum(weight.numel() for weight in model.parameters()) + 3 * sum(w.numel() for w in model.trained().values())


def _needs_reference(config: RunConfig) -> bool:
    """Whether the starting model is kept beside the policy."""
    if isinstance(config, DPORunConfig):
        return not config.dpo.reference_free
    return isinstance(config, RLConfig) and config.algorithm.needs_reference


def _sequences(config: RunConfig) -> int:
    """Sequences of one update."""
    if isinstance(config, DPORunConfig):
        return 2 * config.train.batch
    return config.train.batch * (config.algorithm.group_size if isinstance(config, RLConfig) else 1)


def _parameters(checkpoint: Checkpoint, trained: bool = False) -> int:
    return sum(weight.numel() for weight in checkpoint.model.parameters() if weight.requires_grad or not trained)
