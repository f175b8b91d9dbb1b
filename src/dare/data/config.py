"""Where rows come from and how they are graded."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from dare.config import Config
from dare.data.turns import TurnPolicy


class TaskConfig(Config):
    """A task: training rows, held-out rows, rewards.

    ``train`` and ``test`` name an embedded task (``countdown_small``) or a .parquet/.jsonl file under ``root``;
    ``question_column`` and ``answer_column`` pick the turns of an SFT row out of its columns;
    ``turns`` what an SFT row without ``answer_column`` teaches, its prompt being a conversation that ends in an answer:
    "last" answer only, "random_prefix" one answer drawn per row, "all_turns" each answer as an example of its own;
    ``rewards`` maps reward functions to weights (None: the usual one of the row's ``data_source``);
    ``overlong`` what to do with a row whose prompt or answer exceeds its limit: "drop" counts it, "error" stops.
    """

    train: str = "countdown_small"
    test: str | None = None
    root: Path = Path("data")
    question_column: str | None = None
    answer_column: str | None = None
    turns: TurnPolicy = "last"
    rewards: dict[str, float] | None = None
    train_count: PositiveInt = 20_000
    test_count: PositiveInt = 500
    max_prompt_tokens: PositiveInt = 1024
    overlong: Literal["drop", "error"] = "drop"
    seed: int = Field(0, ge=0)

    def source(self, split: Literal["train", "test"]) -> tuple[str, int]:
        """Name or file of a split's rows, and how many of them to take."""
        return (self.train, self.train_count) if split == "train" else (self.test or self.train, self.test_count)
