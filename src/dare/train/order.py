"""The order in which recorded answers were decoded, read from the rollout file that the rows come from."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from dare.data.config import TaskConfig
from dare.data.source import Item
from dare.errors import DareError
from dare.traces.files import read_traces
from dare.traces.trace import Trace
from dare.types import Sequences

Orders = dict[int, list[int]]
"""Row number -> the pass that decided each position of its answer last, -1 where none did."""


def recorded_orders(task: TaskConfig, rows: Sequence[Item], eos_ids: Sequence[int]) -> Orders:
    """Read the order of every row; raises ``DareError`` for one that was recorded without its token ids."""
    path = task.root / str(task.train)
    traces = read_traces(path)
    return {item.index: _order(traces[item.example.columns["row"]], item, eos_ids[0], path) for item in rows}


def orders_on(seqs: Sequences, rows: Sequence[Item], orders: Orders) -> Tensor:
    """Lay the rows' orders out on their answers, ``[B, T]``; -1 where nothing is recorded."""
    step_BT = torch.full(seqs.ids_BT.shape, -1)
    for step_T, open_T, item in zip(step_BT, seqs.response_BT, rows, strict=True):
        start = len(item.prompt_ids)
        steps = orders[item.index][: int(open_T.sum())]
        step_T[start : start + len(steps)] = torch.tensor(steps)
    return step_BT


def _order(trace: Trace, item: Item, eos_id: int, path: Path) -> list[int]:
    """The order of the answer and of the EOS behind it, as far as that goes on."""
    if not trace.decoded_ids:
        raise DareError(
            f"{path} row {item.example.columns['row']}: no decoded_ids, so its order is not known; decode it anew"
        )
    last = {write.position: write.at for write in trace.writes}
    padded = takewhile(lambda token: token == eos_id, trace.decoded_ids[len(item.answer_ids) :])
    return [last.get(position, -1) for position in range(len(item.answer_ids) + len(list(padded)))]
