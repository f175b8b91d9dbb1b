"""Does the model see what its family says it sees? Some attention back ends ignore a mask or stay causal in silence."""

import torch

from dare.errors import DareError
from dare.models.transformer import Transformer


@torch.no_grad()
def check_visibility(model: Transformer) -> str:
    """Change one token and see which states move; raise ``DareError`` unless exactly those do that should.

    Full attention: the last token moves the first state. Block-causal: a later block moves nothing before it, and a
    block's last token moves its first state.
    """
    spec, device = model.spec, next(model.parameters()).device
    block = spec.block_size or 4
    ids_1T = torch.arange(2 * block, device=device)[None] % spec.vocab_size
    last_of_first, last = block - 1, 2 * block - 1
    if spec.attention == "full":
        _expect(model, ids_1T, last, 0, moves=True)
        return "the last token moves the first state: attention is open"
    _expect(model, ids_1T, last, last_of_first, moves=False)
    _expect(model, ids_1T, last_of_first, 0, moves=True)
    return f"blocks of {block} see themselves and what is before them, nothing after"


def _expect(model: Transformer, ids_1T: torch.Tensor, changed: int, watched: int, *, moves: bool) -> None:
    other_1T = ids_1T.clone()
    other_1T[0, changed] = (ids_1T[0, changed] + 1) % model.spec.vocab_size
    length = torch.tensor([ids_1T.shape[1]], device=ids_1T.device)
    before, after = (model.hidden(ids, length)[0, watched] for ids in (ids_1T, other_1T))
    if bool((before != after).any()) != moves:
        found, wanted = ("no effect", "one") if moves else ("an effect", "none")
        raise DareError(
            f"probe: token {changed} has {found} on state {watched}; a {model.spec.attention} model has {wanted}: "
            "the attention mask does not reach the back end"
        )
