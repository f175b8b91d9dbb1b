"""The gradient of any loss of K views at the memory of one.

The objective sees the model only through log-probabilities and, where it asks, entropies ``[B, K, T]``. So it is
differentiated at those leaves, and each view's slice of the gradient is pushed back through the view's own forward
pass. Exact for any loss, because the forward is deterministic. The last view keeps its graph from the first pass: K
views cost 2K - 1 forwards, one view costs one. Where the gradient does not depend on the values (a weighted sum of
log-probabilities; ratios that are all one), K forwards do, and the values are read on the way.
"""

from dataclasses import replace

import torch
from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import score_view
from dare.diffusion.vocabulary import Reading
from dare.engines.base import Objective
from dare.meter import Meter
from dare.models.base import Scorer


def backward(model: Scorer, batch: Batch, objective: Objective, units: float) -> tuple[float, Meter]:
    """Add the gradient of ``objective(batch) / units`` to the parameters; return the summed loss and its metrics."""
    count, entropy, needed = batch.views.masked_BKT.shape[1], objective.reads_entropy, objective.needs_values(batch)
    readings, last = [_zeros(batch)] * count, None
    if needed:
        with torch.no_grad():
            readings = [score_view(model, batch.seqs, batch.views, view, entropy=entropy) for view in range(count - 1)]
        last = score_view(model, batch.seqs, batch.views, count - 1, entropy=entropy)
        readings.append(last)
    leaf = _leaf(readings)
    leaves = [value_BKT for value_BKT in (leaf.logp, leaf.entropy) if value_BKT is not None]
    loss, meter = objective(leaf.logp, replace(batch, entropy_BKT=leaf.entropy, best_BKT=leaf.best))
    grads = torch.autograd.grad(loss / units, leaves)
    seen = []
    for view in reversed(range(count)):
        if view < count - 1 or last is None:
            last = score_view(model, batch.seqs, batch.views, view, entropy=entropy)
        _push(last, [grad_BKT[:, view] for grad_BKT in grads])
        seen.append(last.logp.detach())
    if not needed:
        loss, meter = objective(torch.stack(seen[::-1], dim=1), batch)
    return float(loss.detach()), meter


def _zeros(batch: Batch) -> Reading:
    weight_BT = batch.views.weight_BKT[:, 0]
    return Reading(torch.zeros(weight_BT.shape, dtype=torch.float64, device=weight_BT.device))


def _leaf(readings: list[Reading]) -> Reading:
    """What every view says, ``[B, K, T]``, without its past."""
    logp_BT, entropy_BT, best_BT = zip(*readings, strict=True)
    logp_BKT = torch.stack(logp_BT, dim=1).detach().requires_grad_(True)
    if entropy_BT[0] is None:
        return Reading(logp_BKT)
    return Reading(logp_BKT, torch.stack(entropy_BT, dim=1).detach().requires_grad_(True), torch.stack(best_BT, dim=1))


def _push(reading: Reading, grads: list[Tensor]) -> None:
    if reading.logp.requires_grad:
        outputs = [value for value in (reading.logp, reading.entropy) if value is not None]
        torch.autograd.backward(outputs, grads)
