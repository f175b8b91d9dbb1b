"""Rewards of a step's rollouts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dare.data.source import Item
from dare.models.chat import response_texts
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.rewards.grade import Grade, grade
from dare.train.config import RLConfig
from dare.types import Rollouts


class Judge:
    """Grades answers to the prompts of one step."""

    def __init__(self, config: RLConfig, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Item]):
        self.config, self.tokenizer = config, tokenizer
        self.examples = [item.example for item in rows]

    def grade(self, rollouts: Rollouts) -> tuple[list[str], list[Grade]]:
        """Return each row's text and grade."""
        texts = response_texts(self.tokenizer, rollouts)
        return texts, grade(texts, self.examples, self.config.task.rewards)

    def totals(self, rollouts: Rollouts, grades: Sequence[Grade]) -> Tensor:
        """Return what the policy is trained on, ``[B]``: grades, less the penalty for answers near the end of the
        canvas (DAPO, arXiv 2503.14476, equation 13).
        """
        device, buffer = rollouts.group_B.device, self.config.algorithm.overlong_buffer
        reward_B = torch.tensor([one.total for one in grades], dtype=torch.float64, device=device)
        if not buffer:
            return reward_B
        free_B = rollouts.seqs.response_BT.sum(1) - buffer
        return reward_B - ((rollouts.length_B - free_B) / buffer).clamp(0, 1)
