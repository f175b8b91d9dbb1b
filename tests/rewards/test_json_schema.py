"""JSON and its schema: what a schema may not be, and that nothing is fetched."""

import socket

import pytest

from dare.errors import DareError
from dare.rewards.json_schema import json_schema


@pytest.mark.parametrize("schema", ["{", '"text"', {"type": "nothing"}, {"minimum": "1"}, 3])
def test_a_schema_that_is_none(schema):
    with pytest.raises(DareError, match="not a JSON Schema"):
        json_schema("{}", schema=schema)


def test_nothing_is_fetched(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for address in ("http://127.0.0.1:1/schema.json", "file:///etc/passwd", "#/$defs/missing"):
        with pytest.raises(DareError, match="which it does not hold; put it under"):
            json_schema("{}", schema={"$ref": address})


def test_a_schema_that_loops_is_the_schemas_fault():
    with pytest.raises(DareError, match="cannot be applied"):
        json_schema("{}", schema={"$ref": "#"})


def test_a_pattern_that_is_none_is_the_schemas_fault():
    with pytest.raises(DareError, match=r"not a JSON Schema|cannot be applied"):
        json_schema('"a"', schema={"pattern": "("})


def test_depth_has_a_limit_that_a_schema_of_lists_meets():
    nested = {"$ref": "#/$defs/l", "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}}
    assert json_schema("[" * 60 + "]" * 60, schema=nested) == 1.0
    assert json_schema("[" * 70 + "]" * 70, schema=nested) is None
