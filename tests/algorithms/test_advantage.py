import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from dare.algorithms.advantage import group_mean, group_std, leave_one_out, z_score


@pytest.fixture(scope="module")
def golden(shared):
    return load_file(shared / "golden" / "algorithms" / "advantages.safetensors")


@pytest.fixture(scope="module")
def group_size(shared):
    cases = json.loads((shared / "golden" / "algorithms" / "advantages.json").read_text())["cases"]
    return cases["rectangular_adjacent"]["settings"]["num_generations"]


@pytest.mark.parametrize(
    ("advantage", "who"),
    [(group_mean, "d1_mean_only"), (leave_one_out, "coupled_leave_one_out"), (leave_one_out, "espo_leave_one_out")],
)
def test_the_authors_rectangular_groups(golden, group_size, advantage, who):
    reward_B, wanted_B = golden["rectangular_adjacent/in/rewards"], golden[f"rectangular_adjacent/out/authors/{who}"]
    group_B = torch.arange(len(reward_B)) // group_size
    assert torch.allclose(advantage(reward_B, group_B), wanted_B, rtol=1e-8, atol=1e-12)


def test_justgrpo_standardises_the_samples_of_a_prompt(golden, shared):
    """Its rows come sample by sample: the prompts are interleaved."""
    settings = json.loads((shared / "golden" / "algorithms" / "advantages.json").read_text())["cases"]
    settings = settings["justgrpo_generation_major"]["settings"]
    reward_B = golden["justgrpo_generation_major/in/rewards"]
    group_B = torch.arange(len(reward_B)) % (len(reward_B) // settings["group_size"])
    ours_B = group_std(reward_B, group_B, floor=settings["delta"])
    assert torch.allclose(ours_B, golden["justgrpo_generation_major/out/authors/std"], rtol=1e-8, atol=1e-12)


def test_tracerl_standardises_by_the_deviation_of_the_group(golden):
    reward_PG = golden["tracerl_zscore/in/rewards"]
    wanted_PG = golden["tracerl_zscore/out/authors/population_zscore"]
    group_B = torch.arange(len(reward_PG)).repeat_interleave(reward_PG.shape[1])
    ours_PG = z_score(reward_PG.flatten(), group_B).view_as(reward_PG)
    assert torch.allclose(ours_PG, wanted_PG, rtol=1e-8, atol=1e-12)
    assert (reward_PG == reward_PG[:, :1]).all(1).any(), "the golden has a group without a spread"


RAGGED = [(group_mean, "no_std"), (leave_one_out, "leave_one_out"), (partial(group_std, floor=1e-6), "std")]


@pytest.mark.parametrize(("advantage", "who"), RAGGED)
def test_ragged_unsorted_groups(golden, advantage, who):
    reward_B, group_B = golden["verl_by_uid/in/rewards"], golden["verl_by_uid/in/uid"]
    wanted_B = golden[f"verl_by_uid/out/dare_release/{who}"]
    size_B = (group_B[:, None] == group_B).sum(1)
    alone_B = size_B == 1
    assert alone_B.any() and (group_B.diff() < 0).any() and len(size_B.unique()) > 2
    ours_B = advantage(reward_B, group_B)
    assert torch.allclose(ours_B[~alone_B], wanted_B[~alone_B], rtol=1e-8, atol=1e-12)
    # verl hands a lone response its raw reward, ours has nothing to compare it with
    assert (ours_B[alone_B] == 0).all() and (wanted_B[alone_B] != 0).any()


@pytest.mark.parametrize("advantage", [group_mean, leave_one_out])
def test_credit_is_relative_to_the_group(advantage):
    reward_B = torch.tensor([1.0, 0.0, 5.0, 2.0, 5.0, 3.0], dtype=torch.float64)
    group_B = torch.tensor([7, 7, 2, 7, 2, 900])
    credit_B = advantage(reward_B, group_B)
    assert torch.allclose(advantage(reward_B + 10.0 * (group_B == 7), group_B), credit_B)
    assert torch.allclose(advantage(reward_B * 3, group_B), credit_B * 3)
    assert (credit_B[[2, 4, 5]] == 0).all()
    order = torch.tensor([5, 3, 0, 4, 1, 2])
    assert torch.allclose(advantage(reward_B[order], group_B[order]), credit_B[order])


def test_leave_one_out_is_the_reward_minus_the_mean_of_the_others():
    reward_B = torch.tensor([0.3, -1.0, 2.5, 4.0, 0.1], dtype=torch.float64)
    group_B = torch.tensor([1, 0, 1, 1, 0])
    for row in range(5):
        others_B = (group_B == group_B[row]) & (torch.arange(5) != row)
        wanted = reward_B[row] - reward_B[others_B].mean()
        assert float(leave_one_out(reward_B, group_B)[row]) == pytest.approx(float(wanted), rel=1e-12)
