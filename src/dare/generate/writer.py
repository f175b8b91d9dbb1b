"""Decode a layout, show how it happens, and keep the traces."""

import torch
from rich.console import Console

from dare.decoding.denoise import Watch, infill
from dare.diffusion.noise import key
from dare.generate.config import GenerateConfig, Wishes
from dare.generate.layout import Layout, written
from dare.models.checkpoint import Checkpoint
from dare.progress import decoding_bar
from dare.serving.text import Ending
from dare.traces.files import append_traces
from dare.traces.page import write_page
from dare.traces.record import trace
from dare.traces.terminal import Animation, plain, print_steps, say
from dare.traces.trace import Trace
from dare.types import Rollouts


class Writer:
    """Answers on stdout, for as long as a command lasts."""

    def __init__(self, name: str, checkpoint: Checkpoint, wishes: Wishes, config: GenerateConfig):
        assert checkpoint.tokenizer is not None
        self.name, self.model, self.tokenizer = name, checkpoint.model, checkpoint.tokenizer
        self.wishes, self.config, self.traces = wishes, config, list[Trace]()
        self.ending = Ending(self.tokenizer, self.model.spec.eos_ids, wishes.stop)
        self.out = Console(highlight=False, markup=False, emoji=False)

    def write(self, layout: Layout, turn: int = 0) -> list[str]:
        """Decode ``n`` samples, print and keep them, and return their texts; ``turn`` is part of the noise key."""
        traces = self._named(layout, self._decode(layout, turn))
        for number, one in enumerate(traces, start=1):
            if len(traces) > 1:
                say(f"--- {number}/{len(traces)}", self.out)
            if self.wishes.trace and plain(self.out):
                print_steps(one, self.out)
            say(one.completion, self.out)
        self._keep(traces)
        return [one.completion for one in traces]

    def _decode(self, layout: Layout, turn: int) -> Rollouts:
        count = self.wishes.n
        if self.wishes.trace and not plain(self.out):
            with Animation(self.tokenizer, layout.start, self.out) as watch:
                return self._infill(layout, turn, watch)
        with decoding_bar("decoding", count, count * layout.ids.count(self.model.spec.mask_id)) as bar:
            return self._infill(layout, turn, bar)

    def _infill(self, layout: Layout, turn: int, watch: Watch | None) -> Rollouts:
        count = self.wishes.n
        index_B = torch.arange(count, device=self.config.device)
        key_B = key(self.config.seed, "generate", turn, index_B)
        ended = self.ending.reached if self.wishes.stop else None
        texts = [layout.ids] * count
        return infill(self.model, texts, layout.decoding, key_B, index_B, ended=ended, watch=watch)

    def _named(self, layout: Layout, rollouts: Rollouts) -> list[Trace]:
        count = self.wishes.n
        names = [self.name if count == 1 else f"{self.name}, sample {number}" for number in range(1, count + 1)]
        return [
            trace(rollouts, row, self.tokenizer, layout.start).model_copy(
                update={
                    "name": name,
                    "prompt": layout.prompt,
                    "completion": written(rollouts, row, layout.start, self.ending),
                }
            )
            for row, name in enumerate(names)
        ]

    def _keep(self, traces: list[Trace]) -> None:
        self.traces += traces
        if self.wishes.save:
            append_traces(self.wishes.save, traces)
        if self.wishes.html:
            write_page(self.wishes.html, self.traces, self.name)
