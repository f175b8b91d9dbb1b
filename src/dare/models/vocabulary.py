"""Log-probabilities straight from hidden states: the logits of all tokens never exist at once."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 2**21
"""Logits held at a time (8 MB in float32): few enough for a cache, enough for a matrix product to be fast."""

_WHOLE = 2**23
"""Logits that are held all together instead (32 MB), which spares the backward pass their second computation."""


def linear_logp(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    ids_M: Tensor,
    temperature: float = 1.0,
    *,
    entropy: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability ``[M]`` of ``ids_M`` under softmax(hidden weight^T / temperature); its entropy (nats) on request.

    Equal to a log-softmax over the whole vocabulary, with its gradient, but for the order of summation. The vocabulary
    is taken ``chunk / M`` tokens at a time (None: all together where they are few), in float32 or wider; the backward
    pass computes each part again (cut cross-entropy, arXiv 2411.09009), unless one part holds everything.
    """
    logp_M, entropy_M = _LinearLogp.apply(hidden_MD, weight_VD, ids_M, temperature, entropy, chunk)
    return logp_M, entropy_M


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
    ) -> tuple[Tensor, Tensor | None]:
        parts, mass, mean, picked, logits = parts_of(len(hidden_MD), len(weight_VD), chunk), [], [], [], None
        for part in parts:
            logits = _logits(hidden_MD, weight_VD[part], temperature)
            mass.append(logits.logsumexp(-1))
            picked.append(_picked(logits, ids_M, part))
            if entropy:
                mean.append((logits.softmax(-1) * logits).sum(-1))
        mass_PM = torch.stack(mass)
        total_M = mass_PM.logsumexp(0)
        entropy_M = total_M - ((mass_PM - total_M).exp() * torch.stack(mean)).sum(0) if entropy else None
        ctx.save_for_backward(hidden_MD, weight_VD, ids_M, total_M, entropy_M, logits if len(parts) == 1 else None)
        ctx.temperature, ctx.parts = temperature, parts
        return torch.stack(picked).sum(0) - total_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_grad_M: Tensor, entropy_grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
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
    inside_M = (ids_M >= part.start) & (ids_M < part.stop)
    place_M1 = (ids_M - part.start).where(inside_M, 0)[:, None]
    return torch.where(inside_M, logits.gather(1, place_M1)[:, 0], 0.0)


def _add_picked(grad: Tensor, ids_M: Tensor, part: slice, value_M: Tensor) -> None:
    inside_M = (ids_M >= part.start) & (ids_M < part.stop)
    place_M1 = (ids_M - part.start).where(inside_M, 0)[:, None]
    grad.scatter_add_(1, place_M1, value_M.where(inside_M, 0.0)[:, None].to(grad.dtype))
