"""Grade structured output: is it JSON, and does it satisfy a JSON Schema?"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dare.errors import DareError

MAX_DEPTH = 64
"""Nesting of lists and objects; deeper text is no JSON, so that a recursive schema stays within the stack."""

_FENCE = re.compile(r"```[ \t]*json\b", re.IGNORECASE)


def json_schema(completion: str, *, schema: Mapping[str, Any] | bool | str, **_: Any) -> float | None:
    """Return 1.0 if the last fenced ``json`` block, or else the whole completion, is JSON that satisfies ``schema``.

    Valid JSON that does not is 0.0; text that is not JSON (RFC 8259: no ``NaN``) is ``None``. ``schema`` is an object
    or its JSON text, by default of draft 2020-12; ``format`` is an annotation, as the standard has it. References lead
    only into the schema itself: nothing is fetched. A schema that is not one, or that loops, raises ``DareError``. Its
    regular expressions and ``uniqueItems`` may take long: call this only in a process that may be killed.
    """
    try:
        value = parse(fenced(completion))
    except ValueError:
        return None
    return float(_satisfies(value, schema if isinstance(schema, str) else json.dumps(schema)))


def fenced(text: str) -> str:
    """Return the content of the last fenced ``json`` block, closed or cut off, else all of the text.

    The block ends at a fence that begins a line, which no JSON string can hold.
    """
    openings = list(_FENCE.finditer(text))
    if not openings:
        return text.strip()
    return text[openings[-1].end() :].partition("\n```")[0].strip().removesuffix("```").strip()


def parse(text: str) -> Any:
    """Return the value of a JSON text; ``ValueError`` if it is not JSON or nests deeper than ``MAX_DEPTH``."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [item for item in level if isinstance(item, list | dict)]
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
        if not containers:
            return value
    raise ValueError("nested too deeply")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _satisfies(value: Any, schema: str) -> bool:
    validator = _validator(schema)
    from referencing.exceptions import Unresolvable  # installed with jsonschema

    try:
        return validator.is_valid(value)
    except OverflowError:  # a number too large to be divided
        return False
    except Unresolvable as error:
        raise DareError(f"schema refers to {error.ref!r}, which it does not hold; put it under $defs") from error
    except (RecursionError, re.error) as error:
        raise DareError(f"schema {schema[:80]} cannot be applied: {error}; mend its $ref or pattern") from error


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry
    except ImportError as error:
        raise DareError("reward 'json_schema' needs jsonschema: pip install 'dare[rewards]'") from error
    try:
        value = json.loads(schema)
        kind = validator_for(value, default=Draft202012Validator)
        kind.check_schema(value)
    except (ValueError, TypeError, RecursionError, SchemaError) as error:
        reason = str(error).partition("\n")[0]
        raise DareError(f"schema is {schema[:80]!r}, not a JSON Schema: {reason}") from error
    return kind(value, registry=Registry())
