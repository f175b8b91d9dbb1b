"""Rows written to files of every kind."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the suffix names; a .parquet file gets row groups of three."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text("[" + ",\n".join(lines) + "]" if path.suffix == ".json" else "\n\n".join([*lines, ""]))
    return path
