"""Caches against a reference without one: whole passes whose keys and values are overwritten by recorded ones."""

from pathlib import Path

import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import infill
from dare.models.transformer import Transformer
from families import BLOCK, FULL, load
from rows import keys

CASES = {
    "one": [[5, 6, 7]],
    "three": [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15]],
}
LENGTH, SIZE, STEPS = 10, 4, 6


class Overwritten:
    """Runs the model on whole rows; outside ``fresh``, keys and values are those of the last whole pass."""

    def __init__(self, model: Transformer):
        self.model = model
        self.stored: dict[int, torch.Tensor] = {}
        self.fresh: slice | None = None
        self.hooks = [
            project.register_forward_hook(self._keep)
            for block in model.blocks
            for project in (block.attention.k, block.attention.v)
        ]

    def _keep(self, module, args, output):
        if self.fresh is None:
            self.stored[id(module)] = output.clone()
            return output
        mixed = self.stored[id(module)].clone()
        mixed[:, self.fresh] = output[:, self.fresh]
        return mixed

    @torch.no_grad()
    def logits(self, ids, fresh):
        self.fresh = fresh
        return self.model.head(self.model.hidden(torch.tensor([ids]), torch.tensor([len(ids)])))[0]

    def close(self):
        for hook in self.hooks:
            hook.remove()


def reference(model: Transformer, prompt: list[int], cache: str) -> list[int]:
    """One row, greedily, the most confident first; a whole pass at each block's first step."""
    runner, mask_id = Overwritten(model), model.spec.mask_id
    ids = [*prompt, *[mask_id] * LENGTH]
    for first in range(len(prompt), len(ids), SIZE):
        end = min(first + SIZE, len(ids))
        masks, steps = end - first, -(-STEPS * SIZE // LENGTH)
        for step in range(min(masks, steps)):
            # a family whose state t - 1 predicts token t reads one position more
            window = slice(max(0, first - model.lead), len(ids) if cache == "prefix" else end)
            logits_TV = runner.logits(ids, window if step else None)
            logits_TV[:, mask_id] = -torch.inf
            confidence, token = torch.softmax(logits_TV, -1).max(-1)
            open_ = sorted((p for p in range(first, end) if ids[p] == mask_id), key=lambda p: -float(confidence[p]))
            for position in open_[: masks // steps + (step < masks % steps)]:
                ids[position] = int(token[position])
    runner.close()
    return ids


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [*FULL, "llada_moe"])
def test_span_caches_follow_their_rule(name: str, case: str, cache: str, shared: Path, tmp_path: Path) -> None:
    model = load(shared, name, tmp_path).model
    prompts = CASES[case]
    decoding = DecodingConfig(max_new_tokens=LENGTH, block_size=SIZE, steps=STEPS, stop_at_eos=False, cache=cache)
    texts = [[*prompt, *[model.spec.mask_id] * LENGTH] for prompt in prompts]
    rollouts = infill(model, texts, decoding, keys(len(texts)), torch.arange(len(texts)))
    for row, prompt in enumerate(prompts):
        expected = reference(model, prompt, cache)
        assert rollouts.seqs.ids_BT[row, : len(expected)].tolist() == expected


@pytest.mark.parametrize("settings", [{}, {"threshold": 0.02}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("name", BLOCK)
def test_the_block_cache_changes_nothing(name: str, settings: dict, shared: Path, tmp_path: Path) -> None:
    model = load(shared, name, tmp_path).model
    mask = model.spec.mask_id
    # rows apart from each other, a gap in the middle of a text, a text that begins with masks
    texts = [
        [5, 6, 7, *[mask] * 9],
        [8, 9, 10, 11, 12, *[mask] * 3, 13, 14, *[mask] * 40],
        [*[mask] * 6, 20, 21],
        [30] * 37 + [mask] * 5,
    ]
    decoded = []
    for cache in ("none", "block"):
        decoding = DecodingConfig(max_new_tokens=40, stop_at_eos=False, cache=cache, **settings)
        decoded.append(infill(model, texts, decoding, keys(4), torch.arange(4), rows=3))
    for name_ in ("unmask_step_BT", "forwards_B"):
        assert torch.equal(*(getattr(rollouts, name_) for rollouts in decoded))
    assert torch.equal(*(rollouts.seqs.ids_BT for rollouts in decoded))
    torch.testing.assert_close(*(rollouts.logp_BT for rollouts in decoded), atol=1e-4, rtol=0)
