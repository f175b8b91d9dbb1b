"""A training step as a first version of a trainer has it, for comparison: padded rows, logits at every position.

The model is the same ``Transformer``; so are optimiser, clipping and loss.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dare.batch import Batch
from dare.models.attention import attend
from dare.models.rope import rope_tables
from dare.models.transformer import Transformer


class Plain:
    """``layout`` "padded", "per_block" (a row for each block of each sequence) or "dense" (the pair, all scores)."""

    def __init__(self, model: Transformer, layout: str = "padded"):
        self.model, self.layout = model, layout
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)

    def update(self, batch: Batch) -> None:
        loss = getattr(self, f"_{self.layout}")(batch) / len(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _padded(self, batch: Batch) -> Tensor:
        noised_BT, weight_BT = noised(self.model, batch)
        logits_BTV = self.model.head(self.model.hidden(noised_BT, batch.seqs.lengths_B))
        return (weight_BT * F.cross_entropy(logits_BTV.transpose(1, 2), batch.seqs.ids_BT, reduction="none")).sum()

    def _per_block(self, batch: Batch) -> Tensor:
        """The clean blocks before it, then the noised one; the answer's blocks only."""
        size, (noised_BT, weight_BT) = self.model.spec.block_size, noised(self.model, batch)
        total = torch.zeros(())
        for row, length in enumerate(batch.seqs.lengths_B.tolist()):
            starts = sorted({int(t) // size * size for t in batch.seqs.response_BT[row].nonzero()[:, 0]})
            ids_NT = batch.seqs.ids_BT[row].repeat(len(starts), 1)
            ends_N = torch.tensor([min(start + size, length) for start in starts])
            for ids_T, start in zip(ids_NT, starts, strict=True):
                ids_T[start : start + size] = noised_BT[row, start : start + size]
            states_NTD = self.model.hidden(ids_NT[:, : int(ends_N.max())], ends_N)
            for states_TD, start, end in zip(states_NTD, starts, ends_N.tolist(), strict=True):
                part = slice(start, end)
                logits_TV = self.model.head(states_TD[part])
                losses_T = F.cross_entropy(logits_TV, batch.seqs.ids_BT[row, part], reduction="none")
                total = total + (weight_BT[row, part] * losses_T).sum()
        return total

    def _dense(self, batch: Batch) -> Tensor:
        """One pass over [noised | clean] with a dense mask; the vocabulary meets what is scored."""
        model, ids_BT, (noised_BT, weight_BT) = self.model, batch.seqs.ids_BT, noised(self.model, batch)
        width = ids_BT.shape[1]
        block_T = torch.arange(width) // model.spec.block_size
        query, key = block_T[:, None], block_T[None]
        same, earlier = query == key, query > key
        mask = torch.cat([torch.cat([same, earlier], 1), torch.cat([torch.zeros_like(same), same | earlier], 1)])
        mask = mask & (torch.arange(width) < batch.seqs.lengths_B[:, None]).repeat(1, 2)[:, None, None]
        mask = mask | torch.eye(2 * width, dtype=torch.bool)
        rope = rope_tables(torch.arange(width).repeat(2), model.arch.rotary_size, model.arch.rope_theta, torch.float32)
        x = model.embed(torch.cat([noised_BT, ids_BT], 1))
        for block in model.blocks:
            x = block(x, rope, partial(attend, mask))
        scored_BT = weight_BT != 0
        logits_MV = model.head(model.norm(x[:, :width])[scored_BT])
        return (weight_BT[scored_BT] * F.cross_entropy(logits_MV, ids_BT[scored_BT], reduction="none")).sum()


def noised(model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
    """The ids shown and the weight of each token's loss."""
    views = batch.views
    shown_BT = torch.where(views.masked_BKT[:, 0], model.spec.mask_id, batch.seqs.ids_BT)
    return shown_BT, (views.weight_BKT[:, 0] / batch.seqs.response_BT.sum(1, keepdim=True)).float()
