"""A value model: what the decoder expects of a response, said at each token."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dare.diffusion.vocabulary import Reading
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

    def states(self, shown_NT: Tensor, lengths_N: Tensor, read_NT: Tensor, *, clean_NT: Tensor | None = None) -> Tensor:
        """See ``Scorer.states``."""
        return self.backbone.states(shown_NT, lengths_N, read_NT, clean_NT=clean_NT)

    def read(self, hidden_MD: Tensor, ids_M: Tensor, temperature: float, *, entropy: bool = False) -> Reading:
        """The value ``[M]`` of each state, whatever the token; it has no entropy."""
        wide = torch.promote_types(hidden_MD.dtype, torch.float32)
        value_M = F.linear(hidden_MD.to(wide), self.value.to(wide)[None])[:, 0]
        zero_M = torch.zeros_like(value_M) if entropy else None
        return Reading(value_M, zero_M, zero_M)

    def trained(self) -> dict[str, Tensor]:
        """The weights that learn, by name; the rest is the policy's."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}
