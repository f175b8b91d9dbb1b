"""The order in which recorded answers were decoded, read from the rollout file that the rows come from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dare.data.config import TaskConfig
from dare.data.source import Item
from dare.errors import DareError
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.traces.files import read_traces
from dare.traces.trace import Trace, words
from dare.types import Sequences

Orders = dict[int, list[int]]
"""Row number -> the pass that decided each position of its answer last, -1 where none did."""


def recorded_orders(
    task: TaskConfig, rows: Sequence[Item], tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int]
) -> Orders:
    """Read the order of every row; raises ``DareError`` for one whose text is not what was decoded, token by token."""
    path = task.root / str(task.train)
    traces = read_traces(path)
    orders: Orders = {}
    for item in rows:
        number = item.example.columns["row"]
        orders[item.index], read = _aligned(traces[number], item.answer_ids, tokenizer, eos_ids[0])
        # the template closes an answer also where the decoder did not
        if read < len(item.answer_ids) - (item.answer_ids[-1] in eos_ids):
            raise DareError(
                f"{path} row {number}: the answer's token {read}, {words(tokenizer, item.answer_ids)[read]!r}, is not "
                "what was decoded there, so its order is not known; leave the row out"
            )
    return orders


def orders_on(seqs: Sequences, rows: Sequence[Item], orders: Orders) -> Tensor:
    """Lay the rows' orders out on their answers, ``[B, T]``; -1 where nothing is recorded."""
    step_BT = torch.full(seqs.ids_BT.shape, -1)
    for step_T, open_T, item in zip(step_BT, seqs.response_BT, rows, strict=True):
        start = len(item.prompt_ids)
        steps = orders[item.index][: int(open_T.sum())]
        step_T[start : start + len(steps)] = torch.tensor(steps)
    return step_BT


def _aligned(
    trace: Trace, answer_ids: list[int], tokenizer: PreTrainedTokenizerBase, eos_id: int
) -> tuple[list[int], int]:
    """The order as far as the recorded text is the answer and EOS behind it, and how far that is."""
    final = trace.frames()[-1]
    padding = [eos_id] * max(0, len(final) - len(answer_ids))
    expected = words(tokenizer, [*answer_ids, *padding])
    same = 0
    while same < len(final) and final[same] == expected[same]:
        same += 1
    last = {write.position: write.at for write in trace.writes}
    return [last.get(position, -1) for position in range(same)], same
