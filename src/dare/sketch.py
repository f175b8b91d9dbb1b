"""A model folder whose weights or tokenizer are not there yet: enough of it to plan a run."""

from pathlib import Path
from typing import Any

import torch

from dare.errors import DareError
from dare.models.checkpoint import UNKNOWN_IDS, Checkpoint, build, has_weights
from dare.models.lora import add_adapter
from dare.models.tokenizer import PreTrainedTokenizerBase, load_tokenizer
from dare.models.tokens import read_json
from dare.models.transformer import Transformer
from dare.train.config import RunConfig
from dare.train.run import check_model, newest_checkpoint


def is_sketchy(path: str) -> bool:
    """Tell whether a folder says what its model is, without the weights."""
    folder = Path(newest_checkpoint(path))
    return (folder / "config.json").is_file() and not has_weights(folder)


def sketch(config: RunConfig) -> tuple[Checkpoint, dict[str, str]]:
    """Return the model a run would start from, without storage, and what its folder lacks.

    The tokenizer is None where the folder has none.
    """
    folder = Path(newest_checkpoint(config.model.path))
    settings = read_json(folder / "config.json")
    model, unknown = _model(settings, folder)
    model = model.to(getattr(torch, config.engine.precision))
    check_model(config, model.spec)
    if config.model.lora:
        add_adapter(model, config.model.lora, config.train.seed)
    tokenizer, missing = _tokenizer(folder)
    rows = {"weights": f"not there yet; put them into {folder}", **missing, **unknown}
    return Checkpoint(model, settings, tokenizer), rows


def _model(settings: dict[str, Any], folder: Path) -> tuple[Transformer, dict[str, str]]:
    try:
        return build(settings, folder), {}
    except DareError as error:
        # what is wrong with more than the ids is wrong without them too
        return build(settings, folder, UNKNOWN_IDS), {"ids": f"not known yet; {error}"}


def _tokenizer(folder: Path) -> tuple[PreTrainedTokenizerBase | None, dict[str, str]]:
    try:
        return load_tokenizer(folder), {}
    except DareError as error:
        return None, {"tokenizer": f"not there yet; {error}"}
