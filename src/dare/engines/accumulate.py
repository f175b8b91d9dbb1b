"""The gradient of any loss of K views at the memory of one.

The objective sees the model only through ``logp_BKT``. So it is differentiated at that leaf, and each view's slice of
the gradient is pushed back through the view's own forward pass. Exact for any loss, because the forward is
deterministic. The last view keeps its graph from the first pass: K views cost 2K - 1 forwards, one view costs one.
On the first update after a rollout the behaviour policy's scores are the values themselves, and K forwards do.
"""

import torch
from torch import Tensor

from dare.batch import Batch
from dare.diffusion.likelihood import score_view
from dare.engines.base import Objective
from dare.meter import Meter
from dare.models.base import DiffusionLM


def backward(model: DiffusionLM, batch: Batch, objective: Objective, units: float) -> tuple[float, Meter]:
    """Add the gradient of ``objective(batch) / units`` to the parameters; return the summed loss and its metrics."""
    last = batch.views.masked_BKT.shape[1] - 1
    if batch.on_policy and batch.old_BKT is not None:
        logps = list(batch.old_BKT[:, :last].unbind(1))
    else:
        with torch.no_grad():
            logps = [_logp(model, batch, view) for view in range(last)]
    with_graph_BT = _logp(model, batch, last)
    leaf_BKT = torch.stack([*logps, with_graph_BT.detach()], dim=1).requires_grad_(True)
    loss, meter = objective(leaf_BKT, batch)
    (grad_BKT,) = torch.autograd.grad(loss / units, leaf_BKT)
    _push(with_graph_BT, grad_BKT[:, last])
    for view in range(last):
        _push(_logp(model, batch, view), grad_BKT[:, view])
    return float(loss.detach()), meter


def _logp(model: DiffusionLM, batch: Batch, view: int) -> Tensor:
    views = batch.views
    return score_view(model, batch.seqs, views.masked_BKT[:, view], views.scored_BKT[:, view])[0]


def _push(logp_BT: Tensor, grad_BT: Tensor) -> None:
    if logp_BT.requires_grad:
        logp_BT.backward(grad_BT)
