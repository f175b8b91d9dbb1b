"""How the rewards of a task are chosen, set up and run."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, PositiveInt, model_serializer, model_validator

from dare.config import Config

OnFailure = Literal["fail", "zero", "drop"]


class RewardConfig(Config):
    """One reward: a number is its ``weight``; every further key is an option of the reward itself.

    ``name`` is the reward, where the key that it stands under is a label of its own, so that one reward can be used
    twice; ``decides`` whether an answer must have its full marks to be correct (None: a verifier's yes; no for form,
    length and learned rewards, as long as another reward decides).
    """

    model_config = ConfigDict(extra="allow")

    name: str | None = None
    weight: float = 1.0
    decides: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_weight(cls, value: Any) -> Any:
        return {"weight": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @model_serializer(mode="plain")
    def _short(self) -> Any:
        own = {"name": self.name, "weight": self.weight, "decides": self.decides, **self.options}
        told = {key: value for key, value in own.items() if value is not None}
        return self.weight if told.keys() == {"weight"} else told

    @property
    def options(self) -> dict[str, Any]:
        """Options of the reward itself."""
        return dict(self.model_extra or {})


class GradingConfig(Config):
    """How rewards run that may take long or hang: in processes of their own, which are killed when they do.

    ``workers`` how many (0: none, every reward runs in the process of the run, which nothing can stop then);
    ``seconds`` for one call (None: 30, and 120 for programs); ``memory_mb`` data of each worker;
    ``cache`` results kept, so that equal answers to a row are graded once; ``on_failure`` what becomes of an answer
    whose reward raises, hangs, crashes or gives what is no score: "fail" ends the run and names it, "zero" counts it as
    0, "drop" leaves out the answers to its prompt.
    """

    workers: int = Field(2, ge=0)
    seconds: float | None = Field(None, gt=0)
    memory_mb: PositiveInt = 4096
    cache: int = Field(10_000, ge=0)
    on_failure: OnFailure = "fail"
