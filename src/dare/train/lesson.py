"""From graded rollouts to the batches that a step's updates learn from."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from dare.algorithms.advantage import mixed_groups, success_between
from dare.algorithms.base import Algorithm
from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.value import explained
from dare.batch import Batch
from dare.engines.base import Engine
from dare.meter import Meter
from dare.types import Outcome, Rollouts, Views


def lessons(
    settings: AlgorithmConfig, algorithm: Algorithm, engine: Engine, outcome: Outcome, apart_B: Tensor, meter: Meter
) -> list[Batch]:
    """Assign credit and draw the views of every inner update, all under the policy that made the rollouts.

    ``apart_B`` the largest log ratio between trainer and decoder measured in each row.
    """
    drawn = [algorithm.views(outcome, inner) for inner in range(settings.updates if algorithm.fresh_views else 1)]
    if algorithm.kl_in_reward and algorithm.kl_coef:
        divergence_B = _divergence(algorithm, engine, outcome.rollouts, drawn[0], meter)
        outcome = replace(outcome, reward_B=outcome.reward_B - algorithm.kl_coef * divergence_B)
    if algorithm.value is not None:
        outcome = replace(outcome, value_BKT=engine.values(outcome.rollouts.seqs, drawn[0]))
    advantage_BKT = algorithm.credit(outcome, drawn[0])
    return_BKT = _returns(algorithm, outcome, drawn[0], meter)
    given_BKT = _given(advantage_BKT, drawn[0])
    meter.add("advantage", advantage_BKT, given_BKT)
    meter.add("advantage/squared", advantage_BKT.square(), given_BKT)
    keep_B = _kept(settings, outcome, apart_B)
    meter.add("rows/left_out", (~keep_B).double())
    if not bool(keep_B.any()):
        return []
    kept, advantage_BKT = outcome.select(keep_B), advantage_BKT[keep_B]
    kept_views = [views.select(keep_B) for views in drawn]
    batches = _batches(algorithm, engine, kept.rollouts, advantage_BKT, kept_views, settings.updates)
    if return_BKT is None:
        return batches
    return [replace(batch, value_BKT=kept.value_BKT, return_BKT=return_BKT[keep_B]) for batch in batches]


def _batches(
    algorithm: Algorithm, engine: Engine, rollouts: Rollouts, advantage_BKT: Tensor, drawn: list[Views], updates: int
) -> list[Batch]:
    """One batch per update; at the first one the behaviour policy is the live one and need not be scored."""
    if algorithm.fresh_views:
        return [
            _lesson(algorithm, engine, rollouts, advantage_BKT, views, later=inner > 0)
            for inner, views in enumerate(drawn)
        ]
    batch = _lesson(algorithm, engine, rollouts, advantage_BKT, drawn[0], later=updates > 1)
    return [replace(batch, old_BKT=None), *[batch] * (updates - 1)]


def _lesson(
    algorithm: Algorithm, engine: Engine, rollouts: Rollouts, advantage_BKT: Tensor, views: Views, *, later: bool
) -> Batch:
    seqs = rollouts.seqs
    return Batch(
        seqs,
        views,
        rollouts.counted_BT,
        old_BKT=engine.score(seqs, views).logp_BKT if later and algorithm.behaviour else None,
        reference_BKT=engine.score(seqs, views, reference=True).logp_BKT if algorithm.kl_in_loss else None,
        advantage_BKT=advantage_BKT,
    )


def _given(advantage_BKT: Tensor, views: Views) -> Tensor | None:
    """Where an advantage per token is one (None: everywhere)."""
    per_token = advantage_BKT.shape[-1] > 1
    return views.scored_BKT.any(1, keepdim=True).expand_as(advantage_BKT) if per_token else None


def _returns(algorithm: Algorithm, outcome: Outcome, views: Views, meter: Meter) -> Tensor | None:
    """What the value model learns, where there is one."""
    if algorithm.value is None or outcome.value_BKT is None:
        return None
    return_BKT = algorithm.value.target(outcome, views)
    explained(outcome.value_BKT, return_BKT, views.scored_BKT, meter)
    return return_BKT


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


def _kept(settings: AlgorithmConfig, outcome: Outcome, apart_B: Tensor) -> Tensor:
    keep_B, group_B = torch.ones_like(apart_B, dtype=torch.bool), outcome.rollouts.group_B
    if settings.drop_zero_variance:
        keep_B &= mixed_groups(outcome.reward_B, group_B)
    if settings.success_range is not None:
        keep_B &= success_between(outcome.reward_B, group_B, *settings.success_range)
    if settings.mismatch_cap is not None:
        keep_B &= apart_B <= math.log(settings.mismatch_cap)
    return keep_B
