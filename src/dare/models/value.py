"""A value model: what the decoder expects of a response, said at each token."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.models.transformer import Transformer


class ValueModel(nn.Module):
    """A copy of a policy's decoder with one linear map, without bias, in place of its LM head (TraceRL, arXiv
    2509.06949). It starts at a value of zero everywhere; what is frozen in the policy (under an adapter) stays so.
    """

    def __init__(self, policy: Transformer):
        super().__init__()
        self.spec = policy.spec
        self.backbone = copy.deepcopy(policy)
        if not policy.arch.tied:
            del self.backbone.unembed
        embed = policy.embed.weight
        self.value = nn.Parameter(torch.zeros(policy.arch.hidden_size, dtype=embed.dtype, device=embed.device))

    def hidden(self, ids_NT: Tensor, lengths_N: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """See ``Scorer.hidden``."""
        return self.backbone.hidden(ids_NT, lengths_N, clean_NT=clean_NT)

    def read(self, hidden_MD: Tensor, ids_M: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """The value ``[M]`` of each state, whatever the token; also as the only column of ``[M, 1]``."""
        wide = torch.promote_types(hidden_MD.dtype, torch.float32)
        values_M1 = F.linear(hidden_MD.to(wide), self.value.to(wide)[None])
        return values_M1[:, 0], values_M1

    def trained(self) -> dict[str, Tensor]:
        """The weights that learn, by name; the rest is the policy's."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}
