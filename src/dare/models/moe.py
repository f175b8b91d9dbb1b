"""The sparse feed-forward layer: a router picks a few experts per token, and only those are computed."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.models.linear import Linear


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Sizes and routing of a sparse layer.

    ``scoring`` "softmax" over all experts (Qwen3-MoE, arXiv 2505.09388) or "sigmoid" per expert with a selection bias
    (DeepSeek-V3, arXiv 2412.19437, section 2.1.2); ``groups`` of which only ``kept_groups`` may be chosen from;
    ``scale`` multiplies the routed weights; ``shared_size`` width of the expert every token passes through (0: none);
    ``first_dense`` layers that have an ordinary MLP instead.
    """

    count: int
    active: int
    size: int
    scoring: str = "softmax"
    normalise: bool = True
    groups: int = 1
    kept_groups: int = 1
    scale: float = 1.0
    shared_size: int = 0
    first_dense: int = 0


class GatedMLP(nn.Module):
    """SwiGLU feed-forward (arXiv 2002.05202)."""

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.gate = Linear(hidden_size, size, bias=False)
        self.up = Linear(hidden_size, size, bias=False)
        self.down = Linear(size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply position by position."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Router(nn.Module):
    """Chooses experts and their weights, in float32."""

    def __init__(self, hidden_size: int, experts: Experts):
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts.count, hidden_size))
        if experts.scoring == "sigmoid":
            self.register_buffer("bias", torch.zeros(experts.count))
        self.bias: Tensor

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and expert numbers ``[N, active]``."""
        logits_NE = F.linear(x_ND.float(), self.weight.float()).to(torch.promote_types(x_ND.dtype, torch.float32))
        if self.experts.scoring == "softmax":
            score_NE = logits_NE.softmax(-1)
            index_NA = score_NE.topk(self.experts.active, dim=-1).indices
        else:
            score_NE = logits_NE.sigmoid()
            # the bias balances the load: it decides who is chosen, not how much it counts
            index_NA = self._within_groups(score_NE + self.bias).topk(self.experts.active, dim=-1).indices
        weight_NA = score_NE.gather(-1, index_NA)
        if self.experts.normalise:
            weight_NA = weight_NA / weight_NA.sum(-1, keepdim=True).clamp_min(1e-20)
        return weight_NA * self.experts.scale, index_NA

    def _within_groups(self, score_NE: Tensor) -> Tensor:
        """Close all groups but the best; a group is as good as the sum of its two best experts."""
        grouped = score_NE.view(len(score_NE), self.experts.groups, -1)
        group_score = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1)
        kept = group_score.topk(self.experts.kept_groups, dim=-1).indices
        closed = torch.ones_like(group_score, dtype=torch.bool).scatter(1, kept, False)
        return grouped.masked_fill(closed[..., None], -torch.inf).flatten(1)


class SparseMLP(nn.Module):
    """Routed experts, stored stacked: ``gate`` and ``up`` ``[E, size, D]``, ``down`` ``[E, D, size]``."""

    def __init__(self, hidden_size: int, experts: Experts):
        super().__init__()
        self.router = Router(hidden_size, experts)
        self.gate = nn.Parameter(torch.empty(experts.count, experts.size, hidden_size))
        self.up = nn.Parameter(torch.empty(experts.count, experts.size, hidden_size))
        self.down = nn.Parameter(torch.empty(experts.count, hidden_size, experts.size))
        self.shared = GatedMLP(hidden_size, experts.shared_size) if experts.shared_size else None

    def forward(self, x: Tensor) -> Tensor:
        """Sort (token, expert) pairs by expert: each active expert is one dense product, and no other is touched."""
        x_ND = x.flatten(0, -2)
        weight_NA, index_NA = self.router(x_ND)
        active = index_NA.shape[1]
        order_M = index_NA.flatten().argsort(stable=True)
        token_M = order_M // active
        counts = torch.bincount(index_NA.flatten(), minlength=len(self.gate)).tolist()
        parts = [self._expert(e, part) for e, part in enumerate(x_ND[token_M].split(counts)) if len(part)]
        routed_MD = torch.cat(parts) * weight_NA.flatten()[order_M, None].to(x_ND.dtype)
        out_ND = torch.zeros_like(x_ND).index_add(0, token_M, routed_MD)
        if self.shared is not None:
            out_ND = out_ND + self.shared(x_ND)
        return out_ND.view_as(x)

    def _expert(self, number: int, x_MD: Tensor) -> Tensor:
        hidden = F.silu(F.linear(x_MD, self.gate[number])) * F.linear(x_MD, self.up[number])
        return F.linear(hidden, self.down[number])
