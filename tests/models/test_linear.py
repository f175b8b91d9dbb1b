"""The projection whose products run in oneDNN, against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from dare.models.linear import Linear, in_onednn


def gradients(layer, x, grad):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(grad)
    return y.detach(), x.grad, *(weight.grad for weight in layer.parameters())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lead", [(6,), (2, 3), (1, 2, 3)])
def test_results_and_gradients_are_those_of_torch(bias, lead):
    torch.manual_seed(0)
    ours, plain = Linear(256, 320, bias=bias), torch.nn.Linear(256, 320, bias=bias)
    plain.load_state_dict(ours.state_dict())
    assert in_onednn(ours.weight)
    x, grad = torch.randn(*lead, 256), torch.randn(*lead, 320)
    for mine, expected in zip(gradients(ours, x, grad), gradients(plain, x, grad), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=2e-5)


def test_a_frozen_weight_passes_the_gradient_on():
    layer = Linear(256, 320).requires_grad_(False)
    x = torch.randn(4, 256, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(4, -1), rtol=1e-5, atol=2e-5)
    assert layer.weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_small_weights_are_left_to_torch(dtype):
    wide, small = Linear(256, 320, dtype=dtype), Linear(8, 8)
    assert not in_onednn(wide.weight) and not in_onednn(small.weight)
    x = torch.randn(4, 256, dtype=dtype)
    assert torch.equal(wide(x), F.linear(x, wide.weight, wide.bias))


def test_compiled_it_gives_the_same():
    torch.manual_seed(0)
    layer, x, grad = Linear(256, 320), torch.randn(4, 256), torch.randn(4, 320)
    expected = gradients(layer, x, grad)
    for mine, other in zip(gradients(torch.compile(layer, fullgraph=True), x, grad), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=2e-5)
