"""AdamW and where its state lives: beside the weights, in main memory, or in eight bits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dare.engines.config import OptimConfig
from dare.errors import DareError


def make_optimizer(weights: Sequence[nn.Parameter], optim: OptimConfig) -> torch.optim.Optimizer:
    """AdamW (arXiv 1711.05101) over ``weights``, in the form that they and ``optim`` ask for.

    Weights in half precision have float32 masters, in which small steps are not lost.
    """
    settings: dict[str, Any] = {"lr": optim.lr, "betas": optim.betas, "weight_decay": optim.weight_decay}
    if optim.state == "eight_bit":
        return _eight_bit()(weights, **settings)
    halves = any(weight.dtype.itemsize < 4 for weight in weights)
    if optim.state == "main_memory" or halves:
        return MasterAdamW(weights, "cpu" if optim.state == "main_memory" else None, **settings)
    return torch.optim.AdamW(weights, fused=True, **settings)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step; a rate that is a tensor keeps its place in compiled code."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class MasterAdamW(torch.optim.AdamW):
    """AdamW on float32 copies of the weights, which may live on another device (None: their own); a step copies
    gradients there and the result back. The copies are part of the state.
    """

    def __init__(self, weights: Sequence[nn.Parameter], device: str | None, **settings: Any):
        self.weights = list(weights)
        masters = [weight.detach().to(device, _wide(weight), copy=True) for weight in self.weights]
        super().__init__(masters, fused=True, **settings)

    @property
    def masters(self) -> list[torch.Tensor]:
        """The copies, in the order of the weights."""
        return self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step on the copies and write it to the weights."""
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.grad = None if weight.grad is None else weight.grad.to(master)
        super().step()
        for master, weight in zip(self.masters, self.weights, strict=True):
            weight.copy_(master)
            master.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the weights."""
        for weight in self.weights:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The state of AdamW and the copies."""
        full = super().state_dict()
        kept = {number: {**full["state"].get(number, {}), "master": m} for number, m in enumerate(self.masters)}
        return {**full, "state": kept}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for number, entry in state_dict["state"].items():
            self.masters[number].copy_(entry["master"])
        state = {n: {k: v for k, v in entry.items() if k != "master"} for n, entry in state_dict["state"].items()}
        super().load_state_dict({**state_dict, "state": {n: entry for n, entry in state.items() if entry}})


def _wide(weight: torch.Tensor) -> torch.dtype:
    return torch.promote_types(weight.dtype, torch.float32)


def _eight_bit() -> Any:
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise DareError(
            'optim.state=eight_bit needs torchao; install it: pip install "torchao>=0.14", or set optim.state=weights'
        ) from error
    return AdamW8bit
