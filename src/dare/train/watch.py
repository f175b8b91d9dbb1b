"""Alarms of an RL run: signs in the metrics that learning goes wrong, raised once they have held for a while."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dare.train.config import GuardConfig

Metrics = Mapping[str, float | None]
PREFIX = "alarm/"


@dataclass(frozen=True)
class Sign:
    """``holds(now, first, settings)`` compares a step's metrics with the first step's; ``meaning`` says what it shows.

    ``at_once`` raises the alarm at the first step, not after ``guard.steps`` of them.
    """

    meaning: str
    holds: Callable[[Metrics, Metrics, GuardConfig], bool]
    at_once: bool = False


def _format_floor(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    return min(_of(now, "reward_floor"), _of(now, "groups/none_solved")) >= guard.floor_share


def _zero_variance(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    return _of(now, "groups/zero_variance") >= guard.zero_variance_share


def _entropy_collapse(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    limit = max(guard.entropy_floor, guard.entropy_share * _of(first, "entropy"))
    return _of(now, "entropy", limit + 1) <= limit


def _length_collapse(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    limit = guard.length_share * _of(first, "length/mean")
    return _of(now, "length/mean", limit + 1) <= limit


def _not_finite(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    return max(_of(now, name) for name in ("rows/not_finite", "skipped_updates", "value/skipped_updates")) > 0


def _below_baseline(now: Metrics, first: Metrics, guard: GuardConfig) -> bool:
    return _of(now, "eval/high", 1.0) < _of(now, "eval/baseline")


SIGNS: dict[str, Sign] = {
    "format_floor": Sign(
        "almost every answer has the same reward short of full marks and almost no prompt is solved: the policy earns "
        "what the format alone pays",
        _format_floor,
    ),
    "zero_variance": Sign(
        "the answers to almost every prompt have equal rewards: there is nothing to learn from; raise "
        "decoding.temperature or algorithm.group_size, or choose other prompts",
        _zero_variance,
    ),
    "entropy_collapse": Sign(
        "the policy's entropy is almost gone, it no longer explores; lower optim.lr or raise algorithm.kl_coef",
        _entropy_collapse,
    ),
    "length_collapse": Sign("answers are a small part of their first length", _length_collapse),
    "not_finite": Sign(
        "a score, an advantage, a loss or a gradient was NaN or infinite: the update was skipped; lower optim.lr if it "
        "returns",
        _not_finite,
        at_once=True,
    ),
    "below_baseline": Sign(
        "the 95 % interval of held-out accuracy lies below what the untrained model reached", _below_baseline, True
    ),
}


@dataclass
class Alarms:
    """The state of every alarm; what it knows follows from the metrics it was shown, so a log restores it."""

    settings: GuardConfig
    group_size: int
    first: Metrics = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    raised: set[str] = field(default_factory=set)

    def __call__(self, metrics: Metrics) -> tuple[dict[str, float], list[str]]:
        """Return ``alarm/NAME`` (0 or 1) for a step's metrics, and the names raised for the first time."""
        self.first = self.first or metrics
        values, new = {}, []
        for name, sign in SIGNS.items():
            if name == "zero_variance" and self.group_size == 1:
                continue  # one answer has no variance to lose
            self.held[name] = self.held.get(name, 0) + 1 if sign.holds(metrics, self.first, self.settings) else 0
            on = self.held[name] >= (1 if sign.at_once else self.settings.steps)
            values[PREFIX + name] = float(on)
            if on and name not in self.raised:
                new.append(name)
        self.raised |= set(new)
        return values, new


def _of(metrics: Metrics, name: str, absent: float = 0.0) -> float:
    """A metric's value; one that is missing, or was not finite, shows nothing."""
    value = metrics.get(name)
    return absent if value is None or value != value else value
