"""Grade a final answer to a mathematics problem against the stored one."""

from typing import Any

from dare.rewards.extract import after_hashes, last_boxed
from dare.rewards.latex import equivalent


def boxed(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    r"""Grade the last ``\boxed{…}`` or ``\fbox{…}``: 1.0 if equivalent to the truth, else 0.0; ``None`` without one."""
    answer = last_boxed(completion)
    return float(equivalent(answer, ground_truth)) if answer else None


def hashes(completion: str, *, ground_truth: str, **_: Any) -> float | None:
    """Grade the text after the last ``####``, where GSM8K keeps its answer; scores as ``boxed``."""
    answer = after_hashes(completion)
    return float(equivalent(answer, ground_truth)) if answer else None
