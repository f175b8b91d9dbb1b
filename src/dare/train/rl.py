"""Reinforcement learning: roll out, grade, score, update. Every algorithm runs through this one loop."""

from pathlib import Path

import torch

from dare.algorithms.base import Algorithm
from dare.batch import Batch
from dare.data.source import Item
from dare.diffusion.noise import key
from dare.engines.base import Engine
from dare.meter import Meter
from dare.models.chat import response_texts
from dare.rewards.grade import grade
from dare.train.config import RLConfig
from dare.train.log import RunLog
from dare.train.panel import Stopwatch, step_metrics
from dare.train.run import Run, open_run
from dare.types import Rollouts


def train_rl(config: RLConfig) -> Path:
    """Improve the policy on its own graded answers and return the run folder."""
    algorithm = config.algorithm.build()
    reference = algorithm.kl_coef > 0
    run = open_run(config, answers=False, updates_per_step=config.algorithm.updates, reference=reference)
    with RunLog(run.folder, "rl", run.start, config.train.steps, ("reward/mean", "length/mean", "kl")) as log:
        for step, prompts in run.batches():
            watch, meter, lr = Stopwatch(), Meter(), run.engine.lr()
            rows = [item for item in prompts for _ in range(config.algorithm.group_size)]
            with watch("rollout"):
                rollouts = roll_out(config, run, rows, step)
            with watch("reward"):
                grades = grade(
                    response_texts(run.tokenizer, rollouts), [item.example for item in rows], config.task.rewards
                )
            rewards_B = torch.tensor([g.total for g in grades], dtype=torch.float64, device=rollouts.group_B.device)
            advantage_B = algorithm.advantage(rewards_B, rollouts.group_B)
            with watch("score"):
                batches = [
                    score(run.engine, algorithm, rollouts, advantage_B, inner, meter)
                    for inner in range(config.algorithm.updates)
                ]
            with watch("update"):
                for batch in batches:
                    meter.update(run.engine.update(batch, algorithm))
            metrics = step_metrics(rollouts, grades, advantage_B, meter, watch, config.algorithm.updates)
            log.write(step, {**metrics, "lr": lr})
    return run.folder


def roll_out(config: RLConfig, run: Run, rows: list[Item], step: int) -> Rollouts:
    """Decode one response per row; noise is keyed by (seed, step, row, sample)."""
    index_B = torch.tensor([item.index for item in rows])
    sample_B = torch.arange(len(rows)) % config.algorithm.group_size
    group_B = torch.arange(len(rows)) // config.algorithm.group_size
    key_B = key(config.train.seed, "rl", step, index_B, sample_B)
    return run.engine.rollout([item.prompt_ids for item in rows], config.decoding, key_B, group_B)


def score(
    engine: Engine, algorithm: Algorithm, rollouts: Rollouts, advantage_B: torch.Tensor, inner: int, meter: Meter
) -> Batch:
    """Draw the views of one inner update and score them under the behaviour and the reference policy."""
    seqs = rollouts.seqs
    views = algorithm.views(seqs, key(rollouts.key_B, "views", inner))
    old = engine.score(seqs, views)
    counted_BKT = views.scored_BKT & rollouts.counted_BT[:, None]
    meter.add("entropy", old.entropy_BKT, counted_BKT)
    reference = engine.score(seqs, views, reference=True).logp_BKT if algorithm.kl_coef > 0 else None
    return Batch(seqs, views, rollouts.counted_BT, old.logp_BKT, reference, advantage_B, on_policy=inner == 0)
