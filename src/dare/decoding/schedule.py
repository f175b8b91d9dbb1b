"""How many positions each step of a block fills, when steps decide."""

from functools import cache
from itertools import pairwise

SMALLEST_TIME = 1e-3
"""Where Dream's time ends (arXiv 2508.15487, ``eps`` of its sampler)."""


@cache
def quotas(masks: int, steps: int, schedule: str) -> tuple[int, ...]:
    """Share ``masks`` positions out over at most ``steps`` steps; every entry is at least 1 and the sum is ``masks``.

    "even": the remainder goes to the first steps (LLaDA, arXiv 2502.09992); "timestep": time runs evenly from 1 to
    0.001 and a step fills the share of the masks that it takes off (Dream; steps that would fill nothing are left
    out); "ascending": 1, 2, 4, ... (ASS, arXiv 2509.23924), whatever ``steps``.
    """
    if schedule == "even":
        steps = max(1, min(steps, masks))
        return tuple(masks // steps + (step < masks % steps) for step in range(steps))
    if schedule == "ascending":
        return tuple(min(2**step, masks + 1 - 2**step) for step in range(masks.bit_length()))
    return _timestep(masks, steps)


def _timestep(masks: int, steps: int) -> tuple[int, ...]:
    times = [1 + (SMALLEST_TIME - 1) * step / steps for step in range(steps + 1)]
    shares, left = [], masks
    for now, after in list(pairwise(times))[:-1]:
        shares.append(int(left * (1 - after / now)))
        left -= shares[-1]
    return tuple(share for share in [*shares, left] if share)
