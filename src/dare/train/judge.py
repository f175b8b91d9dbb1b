"""Rewards of a step's rollouts."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from dare.data.source import Item
from dare.errors import DareError
from dare.grading.grade import Grade, sound
from dare.grading.grader import Grader
from dare.models.chat import response_texts
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.traces.record import traces
from dare.train.config import RLConfig
from dare.types import Outcome, Rollouts


class Judge:
    """Grades answers to the prompts of one step."""

    def __init__(
        self,
        config: RLConfig,
        grader: Grader,
        tokenizer: PreTrainedTokenizerBase,
        eos_ids: Sequence[int],
        rows: Sequence[Item],
    ):
        self.config, self.grader, self.tokenizer, self.eos_ids = config, grader, tokenizer, eos_ids
        self.examples = [item.example for item in rows]

    def grade(self, rollouts: Rollouts) -> tuple[list[str], list[Grade]]:
        """Return each row's text and grade."""
        texts = response_texts(self.tokenizer, rollouts)
        return texts, self.grader.grade(texts, self.examples, lambda: traces(rollouts, self.tokenizer))

    def sound(self, rollouts: Rollouts, grades: Sequence[Grade]) -> tuple[Rollouts, list[Grade]]:
        """Leave out the prompts of which an answer was dropped: groups stay whole. ``DareError``: none is left."""
        kept = sound(grades, rollouts.group_B.tolist())
        if not any(kept):
            raise DareError("a reward failed over an answer to every prompt of the step; mend it (see above)")
        self.examples = list(compress(self.examples, kept))
        return rollouts.select(torch.tensor(kept)), list(compress(grades, kept))

    def outcome(self, rollouts: Rollouts, grades: Sequence[Grade], progress: float) -> Outcome:
        """Return what the policy is trained on: the grades, less what truncated and over-long answers lose.

        Recorded predictions are graded alike, each text once for its prompt.
        """
        return Outcome(rollouts, self._rewards(rollouts, grades), progress, self._step_rewards(rollouts, grades))

    def _step_rewards(self, rollouts: Rollouts, grades: Sequence[Grade]) -> Tensor | None:
        """Reward of what each pass predicted, ``[B, S]``."""
        if rollouts.predictions_BST is None:
            return None
        known = dict(zip(self._asked(rollouts), grades, strict=True))
        rewards = []
        for ids_BT in rollouts.predictions_BST.unbind(1):
            seqs = replace(rollouts.seqs, ids_BT=ids_BT)
            passed = replace(rollouts, seqs=seqs, counted_BT=seqs.through_eos(self.eos_ids))
            asked = self._asked(passed)
            fresh = {one: row for one, row in zip(asked, self.examples, strict=True) if one not in known}
            found = self.grader.grade([text for _, text in fresh], list(fresh.values()))
            known.update(zip(fresh, found, strict=True))
            rewards.append(self._rewards(passed, [known[one] for one in asked]))
        return torch.stack(rewards, 1)

    def _asked(self, rollouts: Rollouts) -> list[tuple[int, str]]:
        """The prompt and the text of each row: what its grade depends on."""
        return list(zip(rollouts.group_B.tolist(), response_texts(self.tokenizer, rollouts), strict=True))

    def _rewards(self, rollouts: Rollouts, grades: Sequence[Grade]) -> Tensor:
        settings, room_B = self.config.algorithm, rollouts.seqs.response_BT.sum(1)
        reward_B = torch.tensor([one.total for one in grades], dtype=torch.float64, device=room_B.device)
        if settings.truncated_is_wrong:
            reward_B = torch.where(rollouts.seqs.holds(self.eos_ids).any(1), reward_B, 0.0)
        if settings.overlong_buffer:
            # DAPO, arXiv 2503.14476, equation 13
            over_B = rollouts.length_B - (room_B - settings.overlong_buffer)
            reward_B = reward_B - (over_B / settings.overlong_buffer).clamp(0, 1)
        return reward_B
