"""Supervised fine-tuning as an objective: minus the ELBO of the answer (LLaDA, arXiv 2502.09992, equation 5)."""

from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import token_sum
from dare.meter import Meter

_BUCKETS = 5


class NegativeElbo:
    """Each row's weighted cross-entropy over its answer length, averaged over rows; nats per token."""

    def units(self, batch: Batch) -> float:
        """Rows of the batch."""
        return float(len(batch))

    def needs_values(self, batch: Batch) -> bool:
        """The loss is logged."""
        return True

    def __call__(self, logp_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss; a row without a masked token adds zero and stays in the graph."""
        length_B1 = batch.seqs.response_BT.sum(1, keepdim=True).clamp_min(1)
        loss_BT = -token_sum(logp_BKT, batch.views) / length_B1
        return loss_BT.sum(), _metrics(logp_BKT.detach(), loss_BT.detach(), batch)


def _metrics(logp_BKT: Tensor, loss_BT: Tensor, batch: Batch) -> Meter:
    """The loss, its share on EOS padding, and the plain cross-entropy by noise level."""
    meter = Meter()
    meter.add("loss", loss_BT.sum(1))
    padding_BT = batch.seqs.response_BT & ~batch.counted_BT
    meter.add_ratio("loss/eos_padding_share", float(loss_BT[padding_BT].sum()), float(loss_BT.sum()))
    scored_BKT, level_BKT = batch.views.scored_BKT, (batch.views.rate_BKT * _BUCKETS).long().clamp(max=_BUCKETS - 1)
    for level in range(_BUCKETS):
        name = f"loss/t_{level / _BUCKETS:.1f}_{(level + 1) / _BUCKETS:.1f}"
        meter.add(name, -logp_BKT, scored_BKT & (level_BKT == level))
    return meter
