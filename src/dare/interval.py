"""How sure a share of right answers is."""

import math


def wilson(successes: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (E. B. Wilson, JASA 1927); sensible at 0 and 1."""
    share = successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)
