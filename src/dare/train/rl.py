"""Reinforcement learning: roll out, grade, score, update. Every algorithm runs through this one loop."""

from pathlib import Path

import torch

from dare.data.source import Item
from dare.decoding.denoise import Watch
from dare.diffusion.noise import key
from dare.meter import Meter
from dare.progress import say_plan
from dare.train.config import RLConfig
from dare.train.guard import Guard
from dare.train.judge import Judge
from dare.train.lesson import lessons
from dare.train.log import RunLog
from dare.train.mismatch import replay_one_step
from dare.train.panel import Stopwatch, count_not_finite, step_metrics
from dare.train.run import Run, open_run
from dare.train.samples import keep_rollouts
from dare.types import Rollouts


def train_rl(config: RLConfig) -> Path:
    """Improve the policy on its own graded answers and return the run folder."""
    settings = config.algorithm
    run = open_run(
        config,
        answers=False,
        updates_per_step=settings.updates,
        reference=settings.needs_reference,
        critic_lr=settings.critic_lr,
    )
    algorithm = settings.build(run.engine.spec)
    say_plan(config.decoding, run.engine.spec)
    with (
        run.grader,
        RunLog(run.folder, "rl", run.start, config.train.steps, ("reward/mean", "length/mean", "kl")) as log,
    ):
        guard = Guard(config, run, log)
        for step, prompts in run.batches():
            watch, meter, lr = Stopwatch(), Meter(), run.engine.lr()
            rows = [item for item in prompts for _ in range(settings.group_size)]
            judge = Judge(config, run.grader, run.tokenizer, run.engine.spec.eos_ids, rows)
            with watch("rollout"):
                rollouts = roll_out(config, run, rows, step, log.watch(len(rows)))
            with watch("reward"):
                texts, grades = judge.grade(rollouts)
            keep_rollouts(run, step, rollouts, rows, texts, grades)
            for failure in run.grader.counts.news():
                log.say(failure)
            rollouts, grades = judge.sound(rollouts, grades)
            with watch("score"):
                apart_B = replay_one_step(run.engine, rollouts, meter)
                outcome = judge.outcome(rollouts, grades, (step - 1) / config.train.steps)
                batches = lessons(settings, algorithm, run.engine, outcome, apart_B, meter)
                count_not_finite(apart_B, batches, meter)
            with watch("update"):
                for batch in batches:
                    meter.update(run.engine.update(batch, algorithm))
                    if algorithm.value is not None:
                        meter.update(run.engine.update_values(batch, algorithm.value))
            metrics = step_metrics(rollouts, grades, meter, watch, settings.updates)
            guard.watch(step, {**metrics, **run.grader.metrics(), "lr": lr})
    return run.folder


def roll_out(config: RLConfig, run: Run, rows: list[Item], step: int, watch: Watch | None = None) -> Rollouts:
    """Decode one response per row; noise is keyed by (seed, step, row, sample)."""
    index_B = torch.tensor([item.index for item in rows])
    sample_B = torch.arange(len(rows)) % config.algorithm.group_size
    group_B = torch.arange(len(rows)) // config.algorithm.group_size
    key_B = config.algorithm.noise_keys(key(config.train.seed, "rl", step, index_B), sample_B)
    prompts, predictions = [item.prompt_ids for item in rows], config.algorithm.records == "predictions"
    return run.engine.rollout(prompts, config.decoding, key_B, group_B, watch, predictions=predictions)
