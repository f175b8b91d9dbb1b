"""Typed run settings: frozen models, layered YAML files, dotted overrides, errors that name the nearest valid key."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from dare.errors import DareError, nearest


class Config(BaseModel):
    """Base of every settings group: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


C = TypeVar("C", bound=Config)


def load_config(schema: type[C], layers: Sequence[str], base: Mapping[str, Any] | None = None) -> C:
    """Build ``schema`` from ``base``, then YAML files and ``dotted.key=value`` overrides; later ones win."""
    merged: dict[str, Any] = dict(base or {})
    for layer in layers:
        merged = merge(merged, _override(layer) if "=" in layer else _read_yaml(Path(layer)))
    try:
        return schema.model_validate(merged)
    except ValidationError as error:
        raise DareError(_explain(error, schema)) from error


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Overlay nested mappings; a group whose ``name`` changes starts afresh instead of inheriting settings."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            renamed = "name" in value and value["name"] != old.get("name")
            merged[key] = dict(value) if renamed else merge(old, value)
        else:
            merged[key] = value
    return merged


def dump_config(config: Config) -> str:
    """Return the resolved settings as YAML that loads back to an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        hint = nearest(path.name, siblings) if siblings else "no YAML file is in that folder"
        raise DareError(f"config {str(path)!r} does not exist; {hint} (an override is written key=value)")
    try:
        content = yaml.safe_load(os.path.expandvars(path.read_text())) or {}
    except yaml.YAMLError as error:
        raise DareError(f"config {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise DareError(f"config {path}: expected 'key: value' lines, found {type(content).__name__}")
    return content


def _override(text: str) -> dict[str, Any]:
    dotted, _, raw = text.partition("=")
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise DareError(f"override {text!r}: the value is not valid YAML; quote it") from error
    if isinstance(value, str):
        # YAML 1.1 reads 1e-4 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value


def _explain(error: ValidationError, schema: type[Config]) -> str:
    """One line for the first problem: where, what was given, what is expected."""
    first = error.errors()[0]
    *parents, last = [str(part) for part in first["loc"]] or [schema.__name__]
    groups, path = _walk(schema, parents)
    name = ".".join([*path, last])
    if first["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; {nearest(last, {key for group in groups for key in group.model_fields})}"
    if first["type"] == "missing":
        return f"setting {name!r} is required; add {name}=VALUE"
    if first["type"] == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in first["ctx"]["expected_tags"].split(",")]
        return f"{name}.name={first['ctx']['tag']!r} is unknown; {nearest(first['ctx']['tag'], tags)}"
    if first["type"] == "union_tag_not_found":
        return f"setting '{name}.name' is required; add {name}.name=VALUE"
    given = "" if isinstance(first["input"], dict) else f"={first['input']!r}"
    return f"setting {name}{given}: {first['msg'].removeprefix('Value error, ')}"


def _walk(schema: type[Config], parents: Sequence[str]) -> tuple[list[type[Config]], list[str]]:
    """Return the settings groups at a location and the path as the user writes it (union tags left out)."""
    groups: list[type[Config]] = [schema]
    path = []
    for part in parents:
        inside = [field for group in groups if (field := group.model_fields.get(part))]
        if inside:
            groups = [inner for field in inside for inner in _groups_in(field.annotation)]
            path.append(part)
        else:
            groups = [group for group in groups if group.model_fields["name"].default == part]
    return groups, path


def _groups_in(annotation: Any) -> Iterator[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _groups_in(argument)
