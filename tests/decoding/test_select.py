import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.rules import RULES, Readout
from dare.decoding.schedule import quotas
from dare.decoding.select import by_entropy, by_factor, choose, doubtful

QUOTA = torch.tensor([1, 2])


def test_rules_rank_as_named():
    logits_MV = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.2, 0.2], [0.0, 0.0, 1.0]]).log()
    sampling_MV = logits_MV.clone()
    sampling_MV[1, 2] = -torch.inf
    uniform_M = torch.tensor([0.9, 0.1, 0.5])
    read = Readout(logits_MV, sampling_MV, torch.tensor([1, 0, 2]), torch.tensor([4, 5, 6]), uniform_M)
    ranked = {name: rule(read).tolist() for name, rule in RULES.items()}
    assert ranked["low_confidence"] == pytest.approx([0.5, 0.6, 1.0])
    assert ranked["maskgit_plus"] == pytest.approx([0.5, 0.75, 1.0])
    assert ranked["entropy"] == pytest.approx([-0.6931472, -0.5623351, 0.0])
    assert ranked["margin"] == pytest.approx([0.0, 0.5, 1.0])
    assert ranked["random"] == pytest.approx([0.9, 0.1, 0.5])
    assert ranked["left_to_right"] == [-4, -5, -6]


def test_choose_takes_the_quota_or_all_above_the_threshold():
    confidence_NT = torch.tensor([[0.9, 0.2, 0.8, 0.8], [0.1, 0.3, 0.3, 0.9]])
    masked_NT = torch.tensor([[False, True, True, True], [True, True, True, False]])

    def chosen(quota_N=QUOTA, **settings):
        return choose(confidence_NT, masked_NT, quota_N, DecodingConfig(**settings)).long().tolist()

    assert chosen() == [[0, 0, 1, 0], [0, 1, 1, 0]]
    assert chosen(threshold=0.8) == [[0, 0, 1, 1], [0, 1, 0, 0]]
    assert chosen(threshold=0.8, steps=4, steps_bound="minimum") == [[0, 0, 1, 1], [0, 1, 1, 0]]
    assert chosen(threshold=0.2, steps=4, steps_bound="maximum") == [[0, 0, 1, 0], [0, 1, 1, 0]]
    assert chosen(threshold=1.0) == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert choose(confidence_NT, masked_NT & False, QUOTA, DecodingConfig()).sum() == 0


def test_factor_stops_at_the_first_doubtful_rank():
    sorted_NC = torch.tensor([[0.9, 0.8, 0.7, 0.9], [0.2, 0.1, -torch.inf, -torch.inf], [1.0, 1.0, 1.0, 1.0]])
    # 2 (1 - 0.9) = 0.2, 3 (1 - 0.8) = 0.6, 4 (1 - 0.7) = 1.2: the third fails a factor of 1
    assert by_factor(sorted_NC, 1.0).tolist() == [2, 0, 4]


def test_entropy_bound_leaves_the_greatest_out():
    sorted_NC = -torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 5.0, 6.0], [3.0, 4.0, 5.0, 6.0]])
    assert by_entropy(sorted_NC, 0.3).tolist() == [3, 3, 1]


def test_the_least_certain_positions_are_taken_back():
    best_NT = torch.tensor([[0.1, 0.9, 0.3, 0.2], [0.5, 0.4, 0.5, 0.5]])
    block_NT = torch.tensor([[False, True, True, True], [True, True, True, True]])
    taken = doubtful(best_NT, block_NT, torch.tensor([2, 2])).long().tolist()
    assert taken == [[0, 0, 1, 1], [1, 1, 0, 0]]


@pytest.mark.parametrize("schedule", ["even", "timestep", "ascending"])
def test_schedules_fill_every_mask_and_no_step_is_empty(schedule):
    for masks in range(1, 40):
        for steps in (1, 2, 3, 5, 16, 50):
            plan = quotas(masks, steps, schedule)
            assert sum(plan) == masks
            assert min(plan) >= 1
            assert schedule == "ascending" or len(plan) <= steps


def test_schedules_against_the_references(shared):
    """LLaDA's quota table and Dream's time-step table; Dream's steps that fill nothing are left out."""
    import json

    golden = shared / "golden"
    table = json.loads((golden / "llada/generate.json").read_text())["num_transfer_tokens"]
    for steps, rows in table["by_steps"].items():
        for masks, counts in zip(table["mask_counts"], rows, strict=True):
            assert quotas(masks, int(steps), "even") == tuple(count for count in counts if count)
    table = json.loads((golden / "dream/generate.json").read_text())["transfer_schedule"]["table"]
    for name, counts in table.items():
        masks, steps = (int(part.strip("abcdefghijklmnopqrstuvwxyz")) for part in name.split("_"))
        assert quotas(masks, steps, "timestep") == tuple(count for count in counts if count), name
    assert quotas(32, 1, "ascending") == (1, 2, 4, 8, 16, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"threshold": 0.9, "factor": 1.0}, "keep one"),
        ({"threshold": 0.9, "steps": 4}, "steps_bound"),
        ({"factor": 1.0, "steps": 4}, "no effect"),
        ({"steps_bound": "minimum", "steps": 4}, "threshold and steps"),
        ({"threshold": 0.9, "rule": "random"}, "probabilities"),
        ({"entropy_bound": 0.1}, "rule=entropy"),
        ({"threshold": 0.9, "schedule": "timestep"}, "no effect"),
        ({"schedule": "ascending", "steps": 3}, "remove steps"),
        ({"rule": "random", "order_temperature": 1.0}, "order_temperature"),
        ({"top_p": 0.9}, "temperature=0"),
        ({"eos": "last", "eos_discount": 0.5}, "eos_discount"),
        ({"rule": "entropy", "eos_discount": 0.5}, "probability"),
        ({"remask": "running_confidence", "threshold": 0.9}, "remask"),
        ({"cfg_scale": 1.0, "cache": "dual"}, "cache"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        DecodingConfig(**settings)
