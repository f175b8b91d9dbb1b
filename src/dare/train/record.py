"""What a run folder says of its run: the resolved settings, and the machine and source it runs on."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console

from dare.config import dump_config
from dare.data.config import Split
from dare.data.fingerprint import fingerprint
from dare.errors import DareError
from dare.files import write_atomically, writing
from dare.train.config import RunConfig
from dare.train.environment import record_environment
from dare.train.folder import CONFIG
from dare.train.resume import tidy

DATA = "data.json"


def record(config: RunConfig, start: int, splits: Sequence[Split]) -> None:
    """Bring a run folder up to date for a run that takes the steps after ``start``, and say what changes there."""
    folder, console = config.output, Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    fingerprints = {split: fingerprint(config.task, split) for split in splits}
    with writing(f"run folder {folder}"):
        record_data(config, fingerprints)
        for aside in tidy(folder, start):
            console.print(f"set aside, remove it at will: {aside}")
        for change in record_config(config, start):
            console.print(f"continues with another setting: {change}")
        record_environment(folder, config.engine.device, start)


def record_config(config: RunConfig, start: int) -> list[str]:
    """Write ``config.yaml`` and return what differs from before, which is kept as ``config_to_step_N.yaml``.

    It says ``resume: false`` always, so that ``dare VERB config.yaml`` repeats a run and ``resume=true`` continues it.
    """
    path, text = config.output / CONFIG, dump_config(config.model_copy(update={"resume": False}))
    before = path.read_text() if path.is_file() else text
    changes = differences(*(flatten(yaml.safe_load(one)) for one in (before, text)))
    if changes:
        write_atomically(path.with_name(f"config_to_step_{start:06d}.yaml"), before)
    if changes or not path.is_file():
        write_atomically(path, text)
    return [f"{name}={new} (was {old})" for name, (old, new) in changes.items()]


def record_data(config: RunConfig, fingerprints: Mapping[Split, str]) -> None:
    """Write ``data.json``: the fingerprint of each split's rows.

    Raises ``DareError`` where the run began with others: its place among them would mean nothing.
    """
    path = config.output / DATA
    before: dict[Split, str] = json.loads(path.read_text()) if path.is_file() else {}
    for split, rows in fingerprints.items():
        if before.get(split, rows) != rows:
            raise DareError(
                f"the {split} rows are not those this run began with (fingerprint {rows}, then {before[split]}); "
                f"restore them, or train on others in a new run with model.path={config.output}"
            )
    known = {**before, **fingerprints}
    if known != before:
        write_atomically(path, json.dumps(known, indent=2) + "\n")


def differences(*settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting that is not the same everywhere; None where there is none."""
    names = dict.fromkeys(name for one in settings for name in one)
    values = {name: tuple(one.get(name) for one in settings) for name in names}
    return {name: found for name, found in values.items() if any(one != found[0] for one in found)}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
