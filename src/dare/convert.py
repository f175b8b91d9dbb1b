"""``dare convert``: an autoregressive checkpoint as the starting point of a masked or block diffusion model."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from dare.errors import DareError, nearest
from dare.export import stored_dtype
from dare.files import folder_atomically, is_used
from dare.models.autoregressive import Autoregressive, read_autoregressive
from dare.models.checkpoint import Checkpoint, build, save_model
from dare.models.converted import CONVERTED, Alignment, Attention
from dare.models.names import llama_pieces
from dare.models.tokens import read_json
from dare.train.run import load_model, newest_checkpoint

KINDS: dict[str, Attention] = {"masked": "full", "block": "block_causal"}
MASK_TOKEN = "<|mask|>"
_TABLES = ("model.embed_tokens.weight", "lm_head.weight")


def convert(
    source: str, out: Path, *, attention: Attention, block_size: int | None = None, alignment: Alignment | None = None
) -> None:
    """Write ``source`` to ``out`` as a diffusion model: same weights, one more token, other attention.

    ``source`` is a Hugging Face folder, a ``.gguf`` file, or a converted model, whose config alone changes (the next
    stage of a growing ``block_size``). ``alignment`` "next" reads the state before a position, as the weights were
    trained; "same" the position's own. None is "next" for a new conversion and leaves a converted model as it is.

    Raises ``DareError`` where ``out`` exists and is not an empty folder; until all is written, nothing has its name.
    """
    if is_used(out):
        raise DareError(f"output folder {str(out)!r} exists and is not empty; choose another")
    if (attention == "block_causal") != (block_size is not None and block_size > 0):
        expected = "1 or more" if attention == "block_causal" else "none"
        raise DareError(f"block_size={block_size} with attention {attention!r}; expected {expected}, see --block-size")
    change: dict[str, Any] = {"attention": attention, "block_size": block_size}
    if alignment:
        change["alignment"] = alignment
    with folder_atomically(out) as folder:
        save_model(folder, _changed(source, change) or _converted(read_autoregressive(Path(source)), change, folder))


def convert_named(source: str, out: Path, kind: str, block_size: int | None, alignment: str | None) -> None:
    """``convert`` with the words of the command line."""
    if kind not in KINDS:
        raise DareError(f"--to {kind!r} is unknown; {nearest(kind, KINDS)}")
    if alignment not in (None, "next", "same"):
        raise DareError(f"--alignment {alignment!r} is unknown; {nearest(alignment, ('next', 'same'))}")
    convert(source, out, attention=KINDS[kind], block_size=block_size, alignment=cast("Alignment | None", alignment))


def _changed(source: str, change: dict[str, Any]) -> Checkpoint | None:
    """The next stage of a converted model; None where ``source`` is not one."""
    path = Path(newest_checkpoint(source))
    if path.suffix == ".gguf" or CONVERTED not in read_json(path / "config.json").get("architectures", []):
        return None
    checkpoint = load_model(source, dtype=stored_dtype(source))
    checkpoint.config.update(change)
    return checkpoint


def _converted(base: Autoregressive, change: dict[str, Any], folder: Path) -> Checkpoint:
    """The base with its mask token; ``folder`` receives the tokenizer, whose files state the special tokens."""
    tokenizer = base.tokenizer
    known = len(tokenizer)
    if tokenizer.mask_token is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
    mask_id = tokenizer.mask_token_id
    tensors = dict(base.tensors)
    if mask_id >= known:
        tensors |= {name: _with_mask_row(tensors[name], mask_id) for name in _TABLES if name in tensors}
    added = {
        "architectures": [CONVERTED],
        "base_architecture": base.config["architectures"][0],
        "vocab_size": len(tensors[_TABLES[0]]),
        "mask_token_id": mask_id,
        "alignment": "next",
    }
    config = {**base.config, **added, **change}
    tokenizer.save_pretrained(folder)
    model = build(config, folder)
    names = {name: llama_pieces(name, model.arch)[0].tensor for name in model.state_dict()}
    model.load_state_dict({name: tensors[tensor] for name, tensor in names.items()}, assign=True)
    return Checkpoint(model, config, tokenizer, base.generation_config)


def _with_mask_row(table_VD: Tensor, mask_id: int) -> Tensor:
    """Give the mask the mean of the rows before it, in an unused padded row where there is one, else in a new row."""
    mean_D = table_VD[:mask_id].float().mean(0).to(table_VD.dtype)
    return torch.cat([table_VD[:mask_id], mean_D[None], table_VD[mask_id + 1 :]])
