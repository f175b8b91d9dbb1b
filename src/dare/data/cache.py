"""Tokenised rows kept in files named by everything they depend on."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dare.data.items import Item
from dare.data.tables import digest
from dare.errors import DareError
from dare.files import write_atomically
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example

_FORMAT = 1
_IDS = pa.list_(pa.int32())
_SCHEMA = pa.schema(
    {"index": pa.int64(), "prompt": _IDS, "answer": _IDS, "rejected": _IDS, "ends": pa.bool_(), "example": pa.string()}
)


Built = tuple[list[Item], int]
"""Items, and the number of rows that gave none."""


def cached(folder: Path | None, key: Callable[[], str], build: Callable[[], Built]) -> Built:
    """Return the items in ``folder`` under ``key``; where they are not, or there is no folder, ``build`` them.

    A file is written under a temporary name and renamed, so that runs may share the folder. Numbers and texts come back
    as they were; a column that JSON would change raises ``DareError``.
    """
    if folder is None:
        return build()
    path = folder / f"{key()[:32]}.arrow"
    if path.is_file():
        return _read(path)
    items, empty = build()
    schema = _SCHEMA.with_metadata({"empty": str(empty)})
    table = pa.Table.from_pylist([_record(item) for item in items], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, sink.getvalue().to_pybytes())
    except OSError as error:
        reason = error.strerror or error
        raise DareError(f"task.cache={folder} cannot be written ({reason}); name a writable folder") from error
    return items, empty


def cache_key(tokenizer: PreTrainedTokenizerBase, *parts: object) -> str:
    """Hash the tokenizer, its chat template and everything else that decides the items."""
    if tokenizer.is_fast:
        content: object = tokenizer.backend_tokenizer.to_str()
    else:
        content = type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), tokenizer.special_tokens_map
    return digest(_FORMAT, content, tokenizer.chat_template, *parts)


def _record(item: Item) -> dict[str, Any]:
    example = [[dict(turn) for turn in item.example.prompt], dict(item.example.columns), item.example.answer]
    try:
        text = json.dumps(example)
        same = json.loads(text) == example
    except (TypeError, ValueError):
        same = False
    if not same:
        raise DareError(
            f"task.cache: row {item.index} has columns that cannot be kept as JSON; remove them or set task.cache=null"
        )
    return {
        "index": item.index,
        "prompt": item.prompt_ids,
        "answer": item.answer_ids,
        "rejected": item.rejected_ids,
        "ends": item.ends,
        "example": text,
    }


def _read(path: Path) -> Built:
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            columns: dict[str, Sequence[Any]] = table.to_pydict()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DareError(f"cached rows {path} cannot be read ({reason}); remove the file") from error
    records = zip(*(columns[name] for name in _SCHEMA.names), strict=True)
    return [_item(*record) for record in records], int(table.schema.metadata[b"empty"])


def _item(index: int, prompt: list[int], answer: list[int], rejected: list[int], ends: bool, text: str) -> Item:
    turns, columns, worked = json.loads(text)
    return Item(index, Example(tuple(turns), columns, worked), prompt, answer, rejected, ends)
