import torch

from dare.batch import Batch
from dare.types import Views, pack


def test_selecting_and_moving_rows_reach_nested_rows() -> None:
    seqs = pack([[1, 2, 3], [4, 5]], [1, 1], pad_id=0)
    zeros_BKT = torch.zeros(2, 1, 3)
    batch = Batch(seqs, Views(zeros_BKT.bool(), zeros_BKT, zeros_BKT), seqs.response_BT)
    one = batch.select(slice(1, 2))
    assert one.seqs.ids_BT.tolist() == [[4, 5, 0]] and len(one.views.weight_BKT) == 1 and one.old_BKT is None
    moved = batch.to("meta")
    for tensor in (moved.seqs.ids_BT, moved.views.masked_BKT, moved.counted_BT):
        assert tensor.device.type == "meta"
