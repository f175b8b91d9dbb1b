"""Write a run's model as one complete Hugging Face folder: adapter merged, tokenizer and chat template included."""

from pathlib import Path

from rich.console import Console
from safetensors import safe_open

from dare.errors import DareError
from dare.files import folder_atomically, is_used
from dare.models.checkpoint import Checkpoint, save_model
from dare.models.lora_files import adapter_base, is_adapter
from dare.train.run import load_model, newest_checkpoint


def export(source: str, out: Path) -> None:
    """Write the model of a run or checkpoint folder to ``out``, in the precision it is stored in, and list the files.

    Raises ``DareError`` where ``out`` exists and is not an empty folder; until all is written, nothing has its name.
    """
    if is_used(out):
        raise DareError(f"export folder {str(out)!r} exists and is not empty; choose another")
    dtype = stored_dtype(source)
    checkpoint = load_model(source, dtype=dtype)
    _state_dtype(checkpoint, dtype)
    with folder_atomically(out) as temporary:
        save_model(temporary, checkpoint)
    for file in sorted(out.iterdir()):
        Console().print(f"{file}  {file.stat().st_size:,} bytes", highlight=False, soft_wrap=True)


def stored_dtype(source: str) -> str:
    """Return the name of the precision of a model's weights, of an adapter's base model: "bfloat16" for example."""
    folder = Path(newest_checkpoint(source))
    if is_adapter(folder):
        return stored_dtype(adapter_base(folder)[0])
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        return "float32"
    with safe_open(files[0], framework="pt") as file:
        return str(file.get_slice(file.keys()[0])[:0].dtype).removeprefix("torch.")


def _state_dtype(checkpoint: Checkpoint, dtype: str) -> None:
    """The config may still state the precision of the model the run started from; transformers would cast to it."""
    for name in ("dtype", "torch_dtype"):
        if name in checkpoint.config:
            checkpoint.config[name] = dtype
