"""The guard of an RL run: held-out accuracy against the untrained model, alarms, and the rule that stops the run.

What is not finite is never learnt from. A NaN logit while decoding ends the run: no text comes of it. A reward that is
not a finite number ends it too, being the mistake of a reward function. Scores of the old, the live or the reference
policy and advantages are counted (``rows/not_finite``); they make the loss NaN, and such an update is skipped, counted
(``skipped_updates``), and after ``optim.max_skipped`` in a row the run ends. Each leaves the last checkpoint intact.
"""

import json
from collections.abc import Mapping

import torch

from dare.diffusion.noise import key
from dare.errors import DareError
from dare.grading.grade import kept
from dare.interval import wilson
from dare.models.chat import response_texts
from dare.traces.record import traces
from dare.train.config import RLConfig
from dare.train.log import METRICS, RunLog
from dare.train.run import Run
from dare.train.watch import SIGNS, Alarms


class Guard:
    """Watches a run step by step; a resumed run's log tells it what it knew."""

    def __init__(self, config: RLConfig, run: Run, log: RunLog):
        self.config, self.run, self.log = config, run, log
        self.alarms = Alarms(config.guard, config.algorithm.group_size)
        self.below = 0
        self.baseline: float | None = None
        if run.start:
            self._recall()
        elif config.guard.eval_every:
            log.write(0, self._remember(self._evaluate()))

    def watch(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log a step with its alarms and, where due, an evaluation; raise ``DareError`` where the run has to stop."""
        due = bool(self.run.held_out) and (step % self.config.guard.eval_every == 0 or step == self.config.train.steps)
        found = {**metrics, **(self._remember(self._evaluate()) if due else {})}
        alarms, new = self.alarms(found)
        self.log.write(step, {**found, **alarms})
        for name in new:
            self.log.say(f"alarm at step {step}: {name}: {SIGNS[name].meaning}")
        if due and self.below >= self.config.guard.patience:
            self._stop(step, found["eval/accuracy"])

    def _evaluate(self) -> dict[str, float]:
        """Answer the held-out rows greedily, with the graders of training."""
        rows, engine, tokenizer = self.run.held_out, self.run.engine, self.run.tokenizer
        greedy = self.config.decoding.model_copy(update={"temperature": 0.0})
        index_B = torch.tensor([item.index for item in rows])
        key_B = key(self.config.train.seed, "guard", index_B)
        rollouts = engine.rollout([item.prompt_ids for item in rows], greedy, key_B, index_B, self.log.watch(len(rows)))
        texts, examples = response_texts(tokenizer, rollouts), [item.example for item in rows]
        grades = kept(self.run.grader.grade(texts, examples, lambda: traces(rollouts, tokenizer)))
        correct, count = sum(one.correct for one in grades), len(grades)
        low, high = wilson(correct, count)
        reward = sum(one.total for one in grades) / count
        return {"eval/accuracy": correct / count, "eval/low": low, "eval/high": high, "eval/reward": reward}

    def _remember(self, result: dict[str, float]) -> dict[str, float]:
        """The first evaluation is the baseline of those that follow."""
        self.baseline = result["eval/accuracy"] if self.baseline is None else self.baseline
        self.below = self.below + 1 if result["eval/high"] < self.baseline else 0
        return {**result, "eval/baseline": self.baseline}

    def _recall(self) -> None:
        lines = map(json.loads, (self.run.folder / METRICS).read_text().splitlines())
        steps = [line for line in lines if line["phase"] == self.log.phase]
        for line in steps:
            if "eval/accuracy" in line:
                self._remember(line)
            if line["step"]:
                self.alarms(line)
        if self.config.guard.eval_every and self.baseline is None:
            raise DareError(
                f"guard.eval_every={self.config.guard.eval_every}: this run began without an evaluation of the "
                "untrained model; resume it with guard.eval_every=0 or start a new run"
            )

    def _stop(self, step: int, accuracy: float) -> None:
        self.run.save(step)
        guard, folder = self.config.guard, self.run.folder
        raise DareError(
            f"stopped at step {step}: held-out accuracy {accuracy:.1%} is below the untrained model's "
            f"{self.baseline:.1%}, outside its 95 % interval, for {self.below} evaluations in a row (guard.patience="
            f"{guard.patience}); lower optim.lr (now {self.config.optim.lr}) or raise algorithm.kl_coef. The step is "
            f"saved: dare report {folder} shows the run, resume=true continues it"
        )
