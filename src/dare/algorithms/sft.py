"""Supervised fine-tuning as an objective: minus a weighted sum of the answer's log-probabilities.

With the weights of the evidence lower bound it is the bound (LLaDA, arXiv 2502.09992, equation 5).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import token_sum
from dare.meter import Meter

Normalise = Literal["row", "token", "masked"]

_BUCKETS = 5


@dataclass(frozen=True)
class NegativeElbo:
    """The weighted cross-entropy of the views in nats, divided once.

    ``normalise`` "row": by each row's answer length, then by the rows (LLaDA); "token": by all answer tokens of the
    batch (SDAR, d1); "masked": by the tokens that are scored (LLaDA2.x). ``next_token``: the last view is the
    left-to-right term. ``confidence`` times the entropy of every scored token whose true id is already the most
    probable is added: it makes the sure surer, so that more can be decided at once (LLaDA2.0, arXiv 2512.15745).
    """

    normalise: Normalise = "row"
    next_token: bool = False
    confidence: float = 0.0

    def units(self, batch: Batch) -> float:
        """What the summed loss is divided by; one where nothing is scored, so that the loss is zero."""
        return max(self._count(batch), 1.0)

    def needs_values(self, batch: Batch) -> bool:
        """A weighted sum has the same gradient whatever the values; an entropy has not."""
        return self.reads_entropy

    @property
    def reads_entropy(self) -> bool:
        """See ``Objective``."""
        return self.confidence > 0

    def __call__(self, logp_BKT: Tensor, batch: Batch) -> tuple[Tensor, Meter]:
        """Return the summed loss; a row without a masked token adds zero and stays in the graph."""
        loss_BT = -token_sum(logp_BKT, batch.views)
        if batch.entropy_BKT is not None and batch.best_BKT is not None:
            right_BKT = batch.views.scored_BKT & (logp_BKT >= batch.best_BKT)
            loss_BT = loss_BT + self.confidence * torch.where(right_BKT, batch.entropy_BKT, 0.0).sum(1)
        if self.normalise == "row":
            loss_BT = loss_BT / batch.seqs.response_BT.sum(1, keepdim=True).clamp_min(1)
        return loss_BT.sum(), self._metrics(logp_BKT.detach(), loss_BT.detach(), batch)

    def _count(self, batch: Batch) -> float:
        if self.normalise == "row":
            return float(len(batch))
        return float((batch.seqs.response_BT if self.normalise == "token" else batch.views.scored_BKT).sum())

    def _metrics(self, logp_BKT: Tensor, loss_BT: Tensor, batch: Batch) -> Meter:
        """The loss, its share on EOS padding, and the plain cross-entropy of each kind of token, by noise level."""
        meter, views = Meter(), batch.views
        meter.add_ratio("loss", float(loss_BT.sum()), self._count(batch))
        padding_BT = batch.seqs.response_BT & ~batch.counted_BT
        meter.add_ratio("loss/eos_padding_share", float(loss_BT[padding_BT].sum()), float(loss_BT.sum()))
        if self.next_token:
            meter.add("loss/next_token", -logp_BKT[:, -1], views.scored_BKT[:, -1])
        noised = slice(None, -1 if self.next_token else None)
        masked_BKT, scored_BKT = views.masked_BKT[:, noised], views.scored_BKT[:, noised]
        meter.add("loss/edited", -logp_BKT[:, noised], scored_BKT & ~masked_BKT)
        level_BKT = (views.rate_BKT[:, noised] * _BUCKETS).long().clamp(max=_BUCKETS - 1)
        for level in range(_BUCKETS):
            name = f"loss/t_{level / _BUCKETS:.1f}_{(level + 1) / _BUCKETS:.1f}"
            meter.add(name, -logp_BKT[:, noised], scored_BKT & masked_BKT & (level_BKT == level))
        return meter
