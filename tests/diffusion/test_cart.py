import pytest
import torch

from dare.diffusion.cart import cart_weight


def by_definition(visible_BT: torch.Tensor, p: float) -> torch.Tensor:
    """Every pair of positions."""
    place_T = torch.arange(visible_BT.shape[1])
    distance_TT = (place_T[:, None] - place_T).abs()
    kernel_TT = torch.where(distance_TT > 0, p / 2 * (1 - p) ** (distance_TT - 1).double(), 0.0)
    return visible_BT.double() @ kernel_TT


@pytest.mark.parametrize("p", [0.05, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("length", [1, 2, 37, 600])
def test_two_recursions_are_the_sum_over_all_pairs(p: float, length: int) -> None:
    visible_BT = torch.rand(3, length, generator=torch.Generator().manual_seed(length)) < 0.6
    assert torch.allclose(cart_weight(visible_BT, p), by_definition(visible_BT, p), rtol=1e-12, atol=1e-14)


def test_a_token_between_two_endless_contexts_weighs_one() -> None:
    visible_BT = torch.ones(1, 2001, dtype=torch.bool)
    assert float(cart_weight(visible_BT, 0.3)[0, 1000]) == pytest.approx(1.0, abs=1e-12)


def test_nothing_visible_weighs_nothing() -> None:
    assert not cart_weight(torch.zeros(2, 9, dtype=torch.bool), 0.3).any()
