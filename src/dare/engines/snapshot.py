"""An engine's state of one moment in CPU memory, for a thread to save while training goes on."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from dare.engines.learner import Learner
from dare.engines.local import LocalEngine

L = TypeVar("L", bound=Learner)


def snapshot(engine: LocalEngine) -> LocalEngine:
    """Return a twin whose ``save`` writes what ``engine.save`` would write now, bit for bit.

    It holds CPU copies of the weights that learn and of the optimiser's state; nothing else in it may be used.
    """
    twin = _twin(engine)
    twin.checkpoint = replace(engine.checkpoint, model=twin.model)
    if engine.critic is not None:
        twin.critic = _twin(engine.critic)
    return twin


def _twin(learner: L) -> L:
    weights = learner.model.parameters()
    # nothing changes a frozen weight
    known = {id(w): nn.Parameter(_copied(w)) if w.requires_grad else w for w in weights}
    kept = _copied(learner.optimizer.state_dict())
    twin = copy.copy(learner)
    twin.model = copy.deepcopy(learner.model, known)
    twin.optimizer = cast(Any, SimpleNamespace(state_dict=lambda: kept))
    return twin


def _copied(state: Any) -> Any:
    """Copy the tensors in nested dictionaries to the CPU."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    return {name: _copied(value) for name, value in state.items()} if isinstance(state, dict) else state
