"""How far the trainer's probabilities are from those the decoder sampled with."""

import torch
from torch import Tensor

from dare.diffusion.noise import key, uniform
from dare.diffusion.trajectory import replay
from dare.engines.base import Engine
from dare.meter import Meter
from dare.types import Rollouts


def replay_one_step(engine: Engine, rollouts: Rollouts, meter: Meter) -> Tensor:
    """Score the tokens of one random pass of each row again, and return the row's largest log ratio ``[B]``.

    Logs the entropy the policy had there, an estimate of KL(decoder || trainer) in nats per token, and the largest
    ratio of the two probabilities. An exact decoder in the trainer's precision gives 0 and 1; an approximate cache, a
    remote engine or half precision does not.
    """
    draw_B = uniform(key(rollouts.key_B, "replay"), 1)[:, 0]
    step_B = (draw_B * rollouts.forwards_B).long()
    views = replay(rollouts, step_B[:, None], engine.spec.mask_id)
    scores, scored_BT = engine.score(rollouts.seqs, views), views.scored_BKT[:, 0]
    # a token that a later pass took back or edited carries the log-probability of its successor
    scored_BT = scored_BT & (rollouts.unmask_step_BT == step_B[:, None])
    if views.ids_BKT is not None:
        scored_BT = scored_BT & (views.ids_BKT[:, 0] == rollouts.seqs.ids_BT)
    apart_BT = torch.where(scored_BT, scores.logp_BKT[:, 0] - rollouts.logp_BT, 0.0)
    meter.add("entropy", scores.entropy_BKT[:, 0], scored_BT)
    meter.add("mismatch/kl", apart_BT.exp() - 1 - apart_BT, scored_BT)
    largest_B = apart_BT.abs().amax(1)
    meter.add("mismatch/ratio_max", float(largest_B.max().exp()))
    return largest_B
