"""The gradient of any loss of K views at the memory of one.

The objective sees the model only through ``logp_BKT``. So it is differentiated at that leaf, and each view's slice of
the gradient is pushed back through the view's own forward pass. Exact for any loss, because the forward is
deterministic. The last view keeps its graph from the first pass: K views cost 2K - 1 forwards, one view costs one.
Where the behaviour policy is the live one, every ratio is one whatever the values are: K forwards do.
"""

import torch
from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import score_view
from dare.engines.base import Objective
from dare.meter import Meter
from dare.models.base import Scorer


def backward(model: Scorer, batch: Batch, objective: Objective, units: float) -> tuple[float, Meter]:
    """Add the gradient of ``objective(batch) / units`` to the parameters; return the summed loss and its metrics."""
    count = batch.views.masked_BKT.shape[1]
    values, last_BT = _values(model, batch) if objective.needs_values(batch) else (_zeros(batch), None)
    leaf_BKT = values.requires_grad_(True)
    loss, meter = objective(leaf_BKT, batch)
    (grad_BKT,) = torch.autograd.grad(loss / units, leaf_BKT)
    if last_BT is not None:
        _push(last_BT, grad_BKT[:, -1])
        count -= 1
    for view in range(count):
        _push(_logp(model, batch, view), grad_BKT[:, view])
    return float(loss.detach()), meter


def _values(model: Scorer, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the objective sees, and the last view's log-probabilities with their graph."""
    last = batch.views.masked_BKT.shape[1] - 1
    with torch.no_grad():
        logps = [_logp(model, batch, view) for view in range(last)]
    last_BT = _logp(model, batch, last)
    return torch.stack([*logps, last_BT.detach()], dim=1), last_BT


def _zeros(batch: Batch) -> Tensor:
    weight_BKT = batch.views.weight_BKT
    return torch.zeros(weight_BKT.shape, dtype=torch.float64, device=weight_BKT.device)


def _logp(model: Scorer, batch: Batch, view: int) -> Tensor:
    return score_view(model, batch.seqs, batch.views, view)[0]


def _push(logp_BT: Tensor, grad_BT: Tensor) -> None:
    if logp_BT.requires_grad:
        logp_BT.backward(grad_BT)
