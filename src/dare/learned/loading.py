"""Load a trained ``transformers`` classifier from a local folder, quietly and without running its code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dare.errors import DareError


def load_classifier(path: Path, head: str, device: str) -> Any:
    """Return the ``head`` (Sequence or Token) classifier in ``path``, ready to score on ``device``.

    Weights are read from safetensors files only, nothing is downloaded and no code of the folder runs. On a CPU the
    weights are float32; elsewhere they keep the type of their files. A folder without a trained head is refused.
    """
    import torch
    import transformers

    if not (path / "config.json").is_file():
        raise DareError(f"{path} holds no model (no config.json); write the folder of a downloaded classifier")
    local = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(path, head):
        config = transformers.AutoConfig.from_pretrained(path, **local)
        _check_head(path, head, config)
        model, told = getattr(transformers, f"AutoModelFor{head}Classification").from_pretrained(
            path,
            **local,
            use_safetensors=True,
            dtype=torch.float32 if device == "cpu" else "auto",
            output_loading_info=True,
        )
        model = model.eval().to(device)
    if told["missing_keys"]:
        # transformers fills these with random numbers, which would grade at random
        names = ", ".join(sorted(told["missing_keys"])[:3])
        raise DareError(f"{path}: the weights lack {names}; write the folder of a trained {head.lower()} classifier")
    return model


def _check_head(path: Path, head: str, config: Any) -> None:
    """The two heads can have equal weights: only the name tells which of them was trained."""
    found = config.architectures or []
    if not any(name.endswith(f"For{head}Classification") for name in found):
        raise DareError(
            f"{path} holds {', '.join(found) or 'a model of no named architecture'}; "
            f"this reward needs one whose architecture ends in For{head}Classification"
        )


@contextmanager
def _quiet(path: Path, head: str) -> Iterator[None]:
    """Hold back progress bars and warnings; an error becomes one line."""
    from safetensors import SafetensorError
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DareError(
            f"{path}: no {head.lower()} classifier can be loaded ({reason}); check its files and device"
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
