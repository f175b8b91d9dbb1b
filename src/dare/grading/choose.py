"""From a reward's settings to what calls it."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dare.errors import DareError, nearest
from dare.grading.call import Reply, Request, called
from dare.grading.config import GradingConfig, RewardConfig
from dare.grading.interface import interface_of
from dare.grading.locate import is_custom, locate
from dare.grading.scorer import Memory, Run, Scorer, here
from dare.rewards.registry import APART, LEARNED, REWARDS

SECONDS = 30.0
"""What a call of a custom reward may take, where the settings do not say."""


def choose(label: str, setting: RewardConfig, grading: GradingConfig, apart: Run) -> Scorer:
    """Return the scorer of a reward; ``apart`` runs what may hang. ``DareError``: the reward does not exist."""
    name = setting.name or label
    if name in LEARNED:
        return Scorer(label, _made(label, locate(LEARNED[name]), setting.options), {}, _whole, 0.0)
    if name in APART:
        seconds = grading.seconds or APART[name]
        memory = Memory(grading.cache)
        return Scorer(label, REWARDS[name], setting.options, apart, seconds, memory, trusted=True)
    if name in REWARDS:
        return Scorer(label, REWARDS[name], setting.options, here, 0.0)
    if is_custom(name):
        return Scorer(label, name, setting.options, apart, grading.seconds or SECONDS, Memory(grading.cache))
    raise DareError(f"reward is {name!r}, which does not exist; {nearest(name, [*REWARDS, *LEARNED])}")


def _made(label: str, factory: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Make a learned reward out of its options."""
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        names = ", ".join(inspect.signature(factory).parameters)
        raise DareError(f"task.rewards.{label}: {error}; options: {names}") from error
    return factory(**options)


def _whole(requests: Sequence[Request]) -> list[Reply]:
    """Call learned rewards in this process; what they raise is wrong with their settings, and ends the run."""
    replies = []
    for request in requests:
        assert callable(request.where)
        if request.subject is None:
            replies.append(Reply(interface_of(request.where).as_dict()))
        else:
            replies.append(Reply(called(request.where, request.subject, request.arguments or {})))
    return replies
