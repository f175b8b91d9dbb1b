"""Next-token states, moved so that state t predicts token t."""

import torch
from torch import Tensor


def previous_states(states_NTD: Tensor, clean_NTD: Tensor | None, block_size: int | None) -> Tensor:
    """Move every state one position on; the first position keeps its own.

    ``clean_NTD`` are the states of the clean half where the input was the pair [noised | clean]: the position before a
    block lies in an earlier block, which is clean by the time the block is decoded.
    """
    moved_NTD = _moved(states_NTD)
    if clean_NTD is None:
        return moved_NTD
    assert block_size, "only a block-causal model reads pairs"
    position_T = torch.arange(states_NTD.shape[1], device=states_NTD.device)
    opens_T1 = ((position_T % block_size == 0) & (position_T > 0))[:, None]
    return torch.where(opens_T1, _moved(clean_NTD), moved_NTD)


def _moved(states_NTD: Tensor) -> Tensor:
    return torch.cat([states_NTD[:, :1], states_NTD[:, :-1]], dim=1)
