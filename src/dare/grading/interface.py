"""What a reward function takes, told by its signature, and where each argument comes from."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dare.errors import DareError, nearest
from dare.rewards.registry import OPTIONS

TRAJECTORY = "trajectory"


@dataclass(frozen=True)
class Interface:
    """``batch``: the first parameter is ``completions``, all of them at once, and the others are lists alike.

    ``required`` and ``optional`` are the names of the others; ``open`` that any further column is taken too, by
    ``**columns``; ``**_`` takes and ignores them, so they are not sent.
    """

    batch: bool
    required: tuple[str, ...]
    optional: tuple[str, ...]
    open: bool

    @property
    def named(self) -> tuple[str, ...]:
        """All names."""
        return self.required + self.optional

    @property
    def trajectory(self) -> bool:
        """Whether the reward looks at how its completion came about."""
        return TRAJECTORY in self.named

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, from which ``Interface(**values)`` is made again."""
        return asdict(self)

    def check_options(self, label: str, options: Mapping[str, Any]) -> None:
        """Raise ``DareError`` for an option that the reward does not have."""
        for name in options:
            if name not in self.named:
                raise DareError(f"task.rewards.{label}: no option {name!r}; {nearest(name, self.named)}")

    def arguments(self, label: str, columns: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for one row: the options, then what its columns give."""
        closed = OPTIONS.intersection(self.optional)  # data must not choose a sandbox
        taken = columns if self.open else [name for name in self.named if name in columns]
        found = {name: columns[name] for name in taken if name not in closed} | dict(options)
        missing = [name for name in self.required if found.get(name) is None and name != TRAJECTORY]
        if missing:
            raise DareError(
                f"reward {label!r} needs {missing[0]!r}, which a row lacks (its columns: {', '.join(columns)}); "
                f"add the column, or write task.rewards={{{label}: {{weight: 1.0, {missing[0]}: VALUE}}}}"
            )
        return found


def interface_of(function: Callable[..., Any]) -> Interface:
    """Read a signature; ``DareError`` for one that is not like ``(completion, *, column, option=default, **_)``."""
    try:
        first, *others = inspect.signature(function).parameters.values()
    except (ValueError, TypeError) as error:
        raise DareError(f"its signature cannot be read ({error}); write (completion, *, ground_truth, **_)") from error
    if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise DareError(f"its first parameter is {str(first)!r}; write (completion, *, ground_truth, **_)")
    wrong = [one for one in others if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL)]
    if wrong:
        raise DareError(f"its parameter {str(wrong[0])!r} has no name to be called by; write (completion, *, ...)")
    named = [one for one in others if one.kind is not one.VAR_KEYWORD]
    rest = [one.name for one in others if one.kind is one.VAR_KEYWORD]
    return Interface(
        batch=first.name == "completions",
        required=tuple(one.name for one in named if one.default is one.empty),
        optional=tuple(one.name for one in named if one.default is not one.empty),
        open=bool(rest) and rest != ["_"],
    )
