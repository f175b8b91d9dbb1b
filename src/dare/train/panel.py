"""The health panel of an RL step: rewards, groups, ratios, lengths, speed."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from dare.batch import Batch
from dare.grading.grade import Grade
from dare.meter import Meter
from dare.types import Rollouts


class Stopwatch:
    """Seconds spent in each named phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block to ``phase``."""
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began


def step_metrics(
    rollouts: Rollouts, grades: Sequence[Grade], updates: Meter, watch: Stopwatch, inner: int
) -> dict[str, float]:
    """Return every metric of one step; ``inner`` is the number of optimiser steps taken."""
    meter = Meter()
    meter.add("reward", torch.tensor([g.total for g in grades]))
    meter.add("length", rollouts.length_B)
    metrics = meter.spread("reward") | meter.spread("length") | updates.spread("ratio") | updates.spread("advantage")
    means = updates.mean()
    metrics["advantage/std"] = max(0.0, means.pop("advantage/squared") - means["advantage"] ** 2) ** 0.5
    metrics |= {name: value for name, value in means.items() if name not in ("ratio", "advantage")}
    metrics |= _by_reward([{**g.scores, **g.parts} for g in grades])
    metrics["reward/unparsed"] = _mean([not g.parsed for g in grades])
    metrics["reward_floor"] = _floor(grades)
    metrics |= _groups(rollouts.group_B, grades)
    metrics["length/clipped"] = _mean((rollouts.length_B == rollouts.seqs.response_BT.sum(1)).tolist())
    metrics |= {f"time/{phase}": seconds for phase, seconds in watch.seconds.items()}
    tokens = float(rollouts.length_B.sum())
    metrics["tokens_per_forward"] = tokens / float(rollouts.forwards_B.sum())
    metrics["tokens_per_s/rollout"] = tokens / watch.seconds["rollout"]
    metrics["tokens_per_s/update"] = tokens * inner / watch.seconds["update"]
    return metrics


def count_not_finite(apart_B: Tensor, batches: Sequence[Batch], meter: Meter) -> None:
    """Add the share of rows whose scores or credit hold a value that is not finite, over all updates of a step."""
    meter.add("rows/not_finite", (~apart_B.isfinite()).double())
    for batch in batches:
        found = [one for one in (batch.old_BKT, batch.reference_BKT, batch.advantage_BKT) if one is not None]
        broken_B = torch.stack([(~one.isfinite()).flatten(1).any(1) for one in found]).any(0)
        meter.add("rows/not_finite", broken_B.double())


def _by_reward(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each reward, and of each part of one, over the answers that it graded."""
    names = dict.fromkeys(name for one in found for name in one)
    return {f"reward/{name}": _mean([one[name] for one in found if name in one]) for name in names}


def _floor(grades: Sequence[Grade]) -> float:
    """Share of the answers that hold the most frequent reward short of full marks."""
    wrong = Counter(g.total for g in grades if not g.correct)
    return max(wrong.values(), default=0) / len(grades)


def _groups(group_B: Tensor, grades: Sequence[Grade]) -> dict[str, float]:
    """Share of prompts whose samples all got the same reward, were all correct, or were all wrong."""
    groups: dict[int, list[Grade]] = {}
    for group, one in zip(group_B.tolist(), grades, strict=True):
        groups.setdefault(group, []).append(one)
    return {
        "groups/zero_variance": _mean([len({g.total for g in members}) == 1 for members in groups.values()]),
        "groups/all_solved": _mean([all(g.correct for g in members) for members in groups.values()]),
        "groups/none_solved": _mean([not any(g.correct for g in members) for members in groups.values()]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
