"""From graded rollouts to the batches that a step's updates learn from."""

import math

import torch
from torch import Tensor

from dare.algorithms.advantage import mixed_groups
from dare.algorithms.base import Algorithm
from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.credit import Context, Credit
from dare.batch import Batch
from dare.engines.base import Engine
from dare.meter import Meter
from dare.types import Rollouts, Views


def lessons(
    settings: AlgorithmConfig,
    algorithm: Algorithm,
    engine: Engine,
    rollouts: Rollouts,
    reward_B: Tensor,
    apart_B: Tensor,
    context: Context,
    meter: Meter,
) -> list[Batch]:
    """Assign credit and draw the views of every inner update, all under the policy that made the rollouts.

    ``apart_B`` the largest log ratio between trainer and decoder measured in each row.
    """
    views = algorithm.views(rollouts, 0)
    if algorithm.kl_in_reward and algorithm.kl_coef:
        reward_B = reward_B - algorithm.kl_coef * _divergence(algorithm, engine, rollouts, views, meter)
    credit = algorithm.credit(rollouts, views, reward_B, context)
    _log(credit, meter)
    keep_B = _kept(settings, rollouts, reward_B, apart_B)
    meter.add("rows/left_out", (~keep_B).double())
    if not bool(keep_B.any()):
        return []
    kept, credit = rollouts.select(keep_B), credit.select(keep_B)
    later = [algorithm.views(kept, inner) for inner in range(1, settings.updates)]
    drawn = [views.select(keep_B), *later]
    return [_lesson(algorithm, engine, kept, credit, drawn[inner], inner) for inner in range(settings.updates)]


def _lesson(
    algorithm: Algorithm, engine: Engine, rollouts: Rollouts, credit: Credit, views: Views, inner: int
) -> Batch:
    """One update's batch; at the first one the behaviour policy is the live one and need not be scored."""
    seqs = rollouts.seqs
    if credit.views_K is not None:
        views = views.pick(credit.views_K)
    compared = algorithm.kl_coef > 0 and not (algorithm.kl_in_reward or algorithm.kl_to_behaviour)
    return Batch(
        seqs,
        views,
        rollouts.counted_BT,
        old_BKT=engine.score(seqs, views).logp_BKT if inner and algorithm.behaviour else None,
        reference_BKT=engine.score(seqs, views, reference=True).logp_BKT if compared else None,
        advantage_BKT=credit.advantage_BKT,
        imitation_BKT=credit.imitation_BKT,
    )


def _divergence(algorithm: Algorithm, engine: Engine, rollouts: Rollouts, views: Views, meter: Meter) -> Tensor:
    """Estimated divergence of each response from the starting model, ``[B]``, summed over its units."""
    batch = Batch(rollouts.seqs, views, rollouts.counted_BT)
    scores = [
        algorithm.unit.reduce(engine.score(rollouts.seqs, views, reference=reference).logp_BKT, views)
        for reference in (False, True)
    ]
    kl = torch.where(algorithm.unit.counted(batch), algorithm.kl(scores[0] - scores[1]), 0.0)
    meter.add("kl", kl, algorithm.unit.counted(batch))
    return kl.flatten(1).sum(1).double()


def _kept(settings: AlgorithmConfig, rollouts: Rollouts, reward_B: Tensor, apart_B: Tensor) -> Tensor:
    keep_B = torch.ones_like(apart_B, dtype=torch.bool)
    if settings.drop_zero_variance:
        keep_B &= mixed_groups(reward_B, rollouts.group_B)
    if settings.mismatch_cap is not None:
        keep_B &= apart_B <= math.log(settings.mismatch_cap)
    return keep_B


def _log(credit: Credit, meter: Meter) -> None:
    meter.add("advantage", credit.advantage_BKT)
    meter.add("advantage/squared", credit.advantage_BKT.square())
