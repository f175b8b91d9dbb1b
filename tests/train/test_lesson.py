from dataclasses import replace

import torch

from dare.algorithms.cj_grpo import CJGRPO
from dare.meter import Meter
from dare.train.lesson import lessons
from rows import UNEQUAL, outcome, pack, text_rollouts, toy_engine


def test_views_that_stay_the_same_are_scored_once(monkeypatch):
    engine, settings = toy_engine(), CJGRPO(group_size=5, updates=3, kl_coef=0.1)
    engine.keep_reference()
    algorithm = settings.build(engine.spec)
    rollouts = replace(text_rollouts(pack(UNEQUAL, engine.spec.pad_id)), group_B=torch.zeros(5, dtype=torch.int64))
    graded = outcome(rollouts, torch.rand(5, dtype=torch.float64))
    score, calls = engine.score, []
    monkeypatch.setattr(engine, "score", lambda *rows, **which: calls.append(which) or score(*rows, **which))
    found, counts = [], []
    for fresh in (False, True):
        one = replace(algorithm, fresh_views=fresh)
        found.append(lessons(settings, one, engine, graded, torch.zeros(5, dtype=torch.float64), Meter()))
        counts.append(len(calls))
    assert counts == [2, 2 + 5]  # old and reference once each; of fresh views old twice, the reference three times
    for once, again in zip(*found, strict=True):
        assert (once.old_BKT is None) == (again.old_BKT is None)
        for name in ("old_BKT", "reference_BKT", "advantage_BKT"):
            if getattr(once, name) is not None:
                assert torch.equal(getattr(once, name), getattr(again, name))
