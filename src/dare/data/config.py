"""Where rows come from and how they are graded."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from dare.config import Config
from dare.data.span import is_word, split_slice
from dare.data.turns import TurnPolicy
from dare.grading.config import GradingConfig, RewardConfig

Split = Literal["train", "test"]

GENERATED_ROWS = 20_000
"""Training rows of an embedded task where ``train_count`` names no number."""


class TaskConfig(Config):
    """A task: training rows, held-out rows, rewards. ``docs/data.md`` has an example of each.

    ``train`` and ``test`` name an embedded task (``countdown_small``), a .parquet, .jsonl, .json or .csv file under
    ``root``, a glob of them, a folder saved by ``datasets`` (with a slash in its name) or ``hf:NAME[:CONFIG][:SPLIT]``;
    each may end in a slice (``rows.jsonl[100:200]``, ``[:10%]``, ``[-500:]``). A list is read as one source; a mapping
    ``{source: weight}`` (``train`` only) mixes its sources in proportion to the weights, in rows drawn.
    ``train_count`` and ``test_count`` limit the rows of each source (None: all of a file, 20 000 of an embedded task).

    ``question_column`` and ``answer_column`` pick the turns of an SFT row out of its columns;
    ``turns`` what an SFT row that is a conversation teaches: "last" answer only, "random_prefix" one answer drawn per
    row, "all_turns" each answer as an example of its own;
    ``rendered`` tells that prompts and answers are in the chat template already and are read as they are;
    ``pack`` joins documents of plain text with EOS and cuts them into rows of so many tokens (None: a document a row);
    ``rewards`` maps rewards to weights, or to a weight and options (None: the usual one of the row's ``data_source``);
    ``grading`` how they run;
    ``min_score`` leaves out rows whose ``score`` is lower (SFT on a rollout file);
    ``overlong`` what becomes of a row whose prompt or answer exceeds its limit: "drop" counts it, "error" stops,
    "truncate_answer" cuts an answer, which then has no end token, and drops a prompt;
    ``stream`` training rows held in memory at a time (None: all), read and shuffled window by window;
    ``cache`` a folder where tokenised rows are kept (None: nowhere).
    """

    train: str | list[str] | dict[str, float] = "countdown_small"
    test: str | list[str] | None = None
    root: Path = Path("data")
    question_column: str | None = None
    answer_column: str | None = None
    turns: TurnPolicy = "last"
    rendered: bool = False
    pack: int | None = Field(None, ge=2)
    rewards: dict[str, RewardConfig] | None = None
    grading: GradingConfig = GradingConfig()
    train_count: PositiveInt | None = None
    test_count: PositiveInt = 500
    min_score: float | None = None
    max_prompt_tokens: PositiveInt = 1024
    overlong: Literal["drop", "error", "truncate_answer"] = "drop"
    stream: PositiveInt | None = None
    cache: Path | None = None
    seed: int = Field(0, ge=0)

    @field_validator("train", "test")
    @classmethod
    def _names_something(cls, value: str | list[str] | dict[str, float] | None) -> object:
        if value is not None and not value:
            raise ValueError("it is empty; name a source")
        if isinstance(value, dict) and (min(value.values()) < 0 or not sum(value.values())):
            raise ValueError("weights must not be negative, and at least one above 0")
        return value

    @field_validator("test", mode="before")
    @classmethod
    def _mixes_no_test_rows(cls, value: object) -> object:
        if isinstance(value, dict):
            raise ValueError("weights mix training rows, and each test row is met once; give a list")
        return value

    @model_validator(mode="after")
    def _agrees(self) -> "TaskConfig":
        if self.stream and self.cache:
            raise ValueError("cache has no effect with stream, which tokenises rows as it meets them; remove one")
        if self.rendered and self.turns != "last":
            raise ValueError(f"turns={self.turns} has no effect with rendered, which reads texts; remove one")
        return self

    @property
    def generated(self) -> bool:
        """Whether all training rows are of embedded tasks, whose test rows are never among them."""
        return all(is_word(split_slice(name)[0]) for names, _ in self.mixture("train") for name in names)

    def source(self, split: Split) -> tuple[str, int | None]:
        """Name of a split's source or sources, and how many rows of each to take (None: all)."""
        return ", ".join(name for names, _ in self.mixture(split) for name in names), self.limit(split)

    def limit(self, split: Split) -> int | None:
        """Rows to take of each source at most (None: all)."""
        return self.train_count if split == "train" else self.test_count

    def mixture(self, split: Split) -> list[tuple[list[str], float]]:
        """Sources read as one, and their weight among the others; one of weight 0 is left out."""
        named = self.train if split == "train" or self.test is None else self.test
        if isinstance(named, dict):
            return [([name], weight) for name, weight in named.items() if weight]
        return [([named] if isinstance(named, str) else named, 1.0)]
