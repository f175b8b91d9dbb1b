"""The forms of AdamW: the same steps wherever the state lives, small steps not lost, resume bit for bit."""

import pytest
import torch
from torch import nn

from dare.engines.config import OptimConfig
from dare.engines.optimizer import MasterAdamW, make_optimizer, set_rate
from dare.engines.state import load_optimizer, save_optimizer


def weights(dtype=torch.float32):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(300, 7).to(dtype)), nn.Parameter(torch.randn(5).to(dtype))]


def train(optimizer, trained, first, last):
    for step in range(first, last):
        for number, weight in enumerate(trained):
            generator = torch.Generator().manual_seed(10 * step + number)
            weight.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert all(weight.grad is None for weight in trained)


def test_state_in_main_memory_takes_the_same_steps():
    plain, moved = weights(), weights()
    train(make_optimizer(plain, OptimConfig(lr=1e-2, weight_decay=0.1)), plain, 0, 5)
    optimizer = make_optimizer(moved, OptimConfig(lr=1e-2, weight_decay=0.1, state="main_memory"))
    train(optimizer, moved, 0, 5)
    assert isinstance(optimizer, MasterAdamW)
    for one, other in zip(plain, moved, strict=True):
        assert torch.equal(one, other)


def test_small_steps_of_half_precision_weights_add_up():
    trained = [nn.Parameter(torch.ones(4, dtype=torch.bfloat16))]
    optimizer = make_optimizer(trained, OptimConfig(lr=1e-4))
    for _ in range(100):
        trained[0].grad = torch.ones_like(trained[0])
        optimizer.step()
    # a step of 1e-4 is below the resolution of bfloat16 at one, a hundred of them are not
    assert trained[0].tolist() == pytest.approx([0.99] * 4, abs=3e-3)
    assert optimizer.masters[0].tolist() == pytest.approx([0.99] * 4, abs=1e-5)


@pytest.mark.parametrize(
    ("state", "dtype"), [("weights", "float32"), ("main_memory", "float32"), ("weights", "bfloat16")]
)
def test_saved_and_loaded_it_goes_on_bit_for_bit(state, dtype, tmp_path):
    optim, kind = OptimConfig(lr=1e-2, state=state), getattr(torch, dtype)
    whole, first = weights(kind), weights(kind)
    train(make_optimizer(whole, optim), whole, 0, 6)
    optimizer = make_optimizer(first, optim)
    train(optimizer, first, 0, 3)
    save_optimizer(tmp_path, optimizer, {"updates": 3})
    resumed = [nn.Parameter(weight.detach().clone()) for weight in first]
    again = make_optimizer(resumed, optim)
    assert load_optimizer(tmp_path, again) == {"updates": 3}
    train(again, resumed, 3, 6)
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one, other)


def test_eight_bit_state_is_smaller_and_goes_on_bit_for_bit(tmp_path):
    pytest.importorskip("torchao")
    optim = OptimConfig(lr=1e-2, state="eight_bit")
    whole, first = ([nn.Parameter(torch.ones(64, 128))] for _ in range(2))
    train(make_optimizer(whole, optim), whole, 0, 6)
    optimizer = make_optimizer(first, optim)
    train(optimizer, first, 0, 3)
    save_optimizer(tmp_path, optimizer, {"updates": 3})
    assert (tmp_path / "optimizer.safetensors").stat().st_size < 0.3 * 2 * whole[0].nbytes
    resumed = [nn.Parameter(first[0].detach().clone())]
    again = make_optimizer(resumed, optim)
    load_optimizer(tmp_path, again)
    assert torch.equal(resumed[0], first[0])
    set_rate(again, optim.lr)
    train(again, resumed, 3, 6)
    assert torch.equal(resumed[0], whole[0])
    plain = [nn.Parameter(torch.ones(64, 128))]
    train(make_optimizer(plain, OptimConfig(lr=1e-2)), plain, 0, 6)
    assert float((plain[0] - whole[0]).abs().max()) < 0.2 * float((1 - plain[0]).abs().max())
