"""Check a run and say what it will do, before any compute."""

from rich.console import Console
from rich.table import Table

from dare.config import load_config
from dare.data.source import Items, load_items
from dare.errors import DareError, nearest
from dare.models.checkpoint import Checkpoint
from dare.models.lora import has_adapter
from dare.models.probe import check_visibility
from dare.plan_memory import activations
from dare.train.config import RLConfig, RunConfig, SFTConfig
from dare.train.run import starting_model

SCHEMAS: dict[str, type[RunConfig]] = {"sft": SFTConfig, "rl": RLConfig}


def plan(verb: str, layers: list[str]) -> None:
    """Load settings, model and training rows of ``dare VERB``, then print ids, sizes and the work ahead."""
    if verb not in SCHEMAS:
        raise DareError(f"plan {verb!r}: no such training verb; {nearest(verb, SCHEMAS)}")
    config = load_config(SCHEMAS[verb], layers)
    checkpoint = starting_model(config, device="cpu")
    assert checkpoint.tokenizer is not None
    spec, room = checkpoint.model.spec, config.decoding.max_new_tokens
    items = load_items(config.task, "train", checkpoint.tokenizer, spec, room, answers=verb == "sft")
    table = Table("plan", f"dare {verb}", title=None)
    for name, value in {
        **_model(checkpoint),
        **_data(items, checkpoint, room),
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
        "probe": check_visibility(checkpoint.model),
    }


def _data(items: Items, checkpoint: Checkpoint, room: int) -> dict[str, str]:
    lengths = sorted(len(item.prompt_ids) for item in items.rows)
    first = items.rows[0].example
    assert checkpoint.tokenizer is not None
    return {
        "rows": f"{len(items.rows)} kept, {items.dropped} left out",
        "prompt tokens": f"median {lengths[len(lengths) // 2]}, longest {lengths[-1]}; response {room}",
        "first prompt, as the model reads it": repr(checkpoint.tokenizer.decode(items.rows[0].prompt_ids)[-200:]),
        "first answer": repr((first.answer or str(first.columns.get("ground_truth")))[:120]),
    }


def _work(config: RunConfig, items: Items) -> dict[str, str]:
    train, decoding = config.train, config.decoding
    lines = {}
    if isinstance(config, RLConfig):
        lines["algorithm"] = ", ".join(f"{key}={value}" for key, value in config.algorithm.model_dump().items())
    lines["decoding"] = ", ".join(f"{key}={value}" for key, value in decoding.model_dump(exclude_none=True).items())
    epochs = train.steps * train.batch / len(items.rows)
    lines["work"] = f"{train.steps} steps of {_sequences(config)} sequences ({epochs:.2f} epochs), lr {config.optim.lr}"
    return lines


def _memory(config: RunConfig, checkpoint: Checkpoint, items: Items) -> dict[str, str]:
    """What parameters, gradients and both Adam moments take, and what the largest training pass adds to it."""
    bytes_each = {"float32": 4, "bfloat16": 2, "float64": 8}[config.engine.dtype]
    model, trained = checkpoint.model, _parameters(checkpoint, trained=True)
    held = _parameters(checkpoint) + 3 * trained
    if isinstance(config, RLConfig) and config.algorithm.needs_reference and not has_adapter(model):
        held += _parameters(checkpoint)
    room, rows = config.decoding.max_new_tokens, min(config.engine.micro_batch, _sequences(config))
    width = max(len(item.prompt_ids) for item in items.rows) + room
    added = activations(model, rows, width, rows * room)
    states, logits = added.states / 1e9, added.logits / 1e9
    return {
        "weights in memory": f"{held * bytes_each / 1e9:.3f} GB, {trained / 1e6:.2f} M parameters trained",
        "activations in memory": f"up to {states + logits:.3f} GB for {rows} sequences of {width} tokens, "
        f"{logits:.3f} GB of it for {rows * room} masked ones' logits",
    }


def _sequences(config: RunConfig) -> int:
    """Sequences of one update."""
    return config.train.batch * (config.algorithm.group_size if isinstance(config, RLConfig) else 1)


def _parameters(checkpoint: Checkpoint, trained: bool = False) -> int:
    return sum(weight.numel() for weight in checkpoint.model.parameters() if weight.requires_grad or not trained)
