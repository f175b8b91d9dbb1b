"""Log-probabilities straight from hidden states: the logits of all tokens never exist at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 2**21
"""Logits held at a time (8 MB in float32): few enough for a cache, enough for a matrix product to be fast."""

_WHOLE = 2**23
"""Logits that are held all together instead (32 MB), which spares the backward pass their second computation."""


class Reading(NamedTuple):
    """``logp`` the log-probability of each true token; on request ``entropy`` of its distribution (nats) and ``best``,
    the log-probability of its most probable token, which has no gradient.
    """

    logp: Tensor
    entropy: Tensor | None = None
    best: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Reading":
        """Change each field that is there."""
        entropy, best = (None if value is None else change(value) for value in (self.entropy, self.best))
        return Reading(change(self.logp), entropy, best)


def linear_logp(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    ids_M: Tensor,
    temperature: float = 1.0,
    *,
    entropy: bool = False,
    chunk: int | None = None,
) -> Reading:
    """Read ``ids_M`` under softmax(hidden weight^T / temperature), each field ``[M]``.

    Equal to a log-softmax over the whole vocabulary, with its gradient, but for the order of summation. The vocabulary
    is taken ``chunk / M`` tokens at a time (None: all together where they are few), in float32 or wider; the backward
    pass computes each part again (cut cross-entropy, arXiv 2411.09009), unless one part holds everything.
    """
    return Reading(*_LinearLogp.apply(hidden_MD, weight_VD, ids_M, temperature, entropy, chunk))


def parts_of(rows: int, vocab_size: int, chunk: int | None = None) -> list[slice]:
    """The parts of the vocabulary that ``rows`` positions meet one after the other."""
    chunk = chunk or (_WHOLE if rows * vocab_size <= _WHOLE else _CHUNK)
    size = max(1, chunk // max(1, rows))
    return [slice(start, min(start + size, vocab_size)) for start in range(0, vocab_size, size)]


class _LinearLogp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        ids_M: Tensor,
        temperature: float,
        entropy: bool,
        chunk: int | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        parts, logits = parts_of(len(hidden_MD), len(weight_VD), chunk), None
        mass, mean, best, picked = [], [], [], []
        for part in parts:
            logits = _logits(hidden_MD, weight_VD[part], temperature)
            mass.append(logits.logsumexp(-1))
            picked.append(_picked(logits, ids_M, part))
            if entropy:
                mean.append((logits.softmax(-1) * logits).sum(-1))
                best.append(logits.amax(-1))
        mass_PM = torch.stack(mass)
        total_M = mass_PM.logsumexp(0)
        entropy_M = total_M - ((mass_PM - total_M).exp() * torch.stack(mean)).sum(0) if entropy else None
        best_M = torch.stack(best).amax(0) - total_M if entropy else None
        if best_M is not None:
            ctx.mark_non_differentiable(best_M)
        ctx.save_for_backward(hidden_MD, weight_VD, ids_M, total_M, entropy_M, logits if len(parts) == 1 else None)
        ctx.temperature, ctx.parts = temperature, parts
        return torch.stack(picked).sum(0) - total_M, entropy_M, best_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_grad_M: Tensor, entropy_grad_M: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        hidden_MD, weight_VD, ids_M, total_M, entropy_M, kept = ctx.saved_tensors
        hidden_grad = torch.zeros_like(hidden_MD) if ctx.needs_input_grad[0] else None
        weight_grad = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        for part in ctx.parts:
            logits = _logits(hidden_MD, weight_VD[part], ctx.temperature) if kept is None else kept.clone()
            grad = _grad(logits.sub_(total_M[:, None]), logp_grad_M, entropy_M, entropy_grad_M)
            _add_picked(grad, ids_M, part, logp_grad_M)
            grad = (grad if ctx.temperature == 1 else grad.div_(ctx.temperature)).to(hidden_MD.dtype)
            if hidden_grad is not None:
                hidden_grad.addmm_(grad, weight_VD[part])
            if weight_grad is not None:
                torch.mm(grad.T, hidden_MD, out=weight_grad[part])
        return hidden_grad, weight_grad, None, None, None, None


def _grad(logp: Tensor, logp_grad_M: Tensor, entropy_M: Tensor | None, entropy_grad_M: Tensor | None) -> Tensor:
    """Overwrite log-probabilities by the gradient of the logits, the true token's own part left out:

    d logp_i / dz = [v = i] - p, d entropy / dz = -p (log p + entropy).
    """
    if entropy_M is None or entropy_grad_M is None:
        return logp.exp_().mul_(-logp_grad_M[:, None])
    slope = logp_grad_M[:, None] + entropy_grad_M[:, None] * (logp + entropy_M[:, None])
    return logp.exp_().mul_(slope).neg_()


def _logits(hidden_MD: Tensor, weight_PD: Tensor, temperature: float) -> Tensor:
    logits = hidden_MD @ weight_PD.T
    # half-precision logits lose the digits a ratio of probabilities needs
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits if temperature == 1 else logits / temperature


def _picked(logits: Tensor, ids_M: Tensor, part: slice) -> Tensor:
    """The logit of each true token of this part, zero for the others."""
    inside_M, place_M1 = _places(ids_M, part)
    return torch.where(inside_M, logits.gather(1, place_M1)[:, 0], 0.0)


def _add_picked(grad: Tensor, ids_M: Tensor, part: slice, value_M: Tensor) -> None:
    inside_M, place_M1 = _places(ids_M, part)
    grad.scatter_add_(1, place_M1, value_M.where(inside_M, 0.0)[:, None].to(grad.dtype))


def _places(ids_M: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Which true tokens are of this part, and their columns in it, the first for the others."""
    inside_M = (ids_M >= part.start) & (ids_M < part.stop)
    return inside_M, (ids_M - part.start).where(inside_M, 0)[:, None]
