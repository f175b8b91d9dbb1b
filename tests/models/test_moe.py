import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dare.models.moe import Experts, SparseMLP

SOFTMAX = Experts(count=6, active=2, size=5)
SIGMOID = Experts(
    count=8, active=3, size=5, scoring="sigmoid", groups=4, kept_groups=2, scale=2.5, shared_size=5, first_dense=0
)


def layer(experts: Experts) -> SparseMLP:
    torch.manual_seed(0)
    module = SparseMLP(7, experts).double()
    for weight in module.state_dict().values():
        torch.nn.init.normal_(weight)
    return module


def naive(module: SparseMLP, x_ND: Tensor) -> Tensor:
    """Token by token, expert by expert, from the definition."""
    experts, rows = module.router.experts, []
    for x_D in x_ND:
        logits_E = (module.router.weight.float() @ x_D.float()).double()
        if experts.scoring == "softmax":
            score_E = logits_E.softmax(0)
            chosen = score_E.argsort(descending=True)[: experts.active].tolist()
        else:
            score_E = logits_E.sigmoid()
            biased = (score_E + module.router.bias).tolist()
            size = experts.count // experts.groups
            groups = [list(range(g * size, (g + 1) * size)) for g in range(experts.groups)]
            best = sorted(groups, key=lambda g: -sum(sorted((biased[e] for e in g), reverse=True)[:2]))
            allowed = [e for g in best[: experts.kept_groups] for e in g]
            chosen = sorted(allowed, key=lambda e: -biased[e])[: experts.active]
        total = sum(score_E[e] for e in chosen)
        out_D = torch.zeros_like(x_D)
        for e in chosen:
            inner = F.silu(module.gate[e] @ x_D) * (module.up[e] @ x_D)
            out_D = out_D + experts.scale * score_E[e] / total * (module.down[e] @ inner)
        rows.append(out_D + (module.shared(x_D) if module.shared is not None else 0))
    return torch.stack(rows)


@pytest.mark.parametrize("experts", [SOFTMAX, SIGMOID])
def test_grouped_equals_the_naive_loop_with_gradients(experts: Experts) -> None:
    module = layer(experts)
    x_NTD = torch.randn(3, 4, 7, dtype=torch.float64, requires_grad=True)
    weights = [x_NTD, *module.parameters()]
    got = module(x_NTD)
    expected = naive(module, x_NTD.flatten(0, 1)).view_as(got)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    probe = torch.randn_like(got)
    for ours, theirs in zip(
        torch.autograd.grad((got * probe).sum(), weights),
        torch.autograd.grad((expected * probe).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_only_active_experts_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = layer(SOFTMAX)
    x_ND = torch.randn(1, 7, dtype=torch.float64)
    computed: list[tuple[int, int]] = []
    original = module._expert
    monkeypatch.setattr(module, "_expert", lambda e, x: (computed.append((e, len(x))), original(e, x))[1])
    module(x_ND)
    chosen = module.router(x_ND)[1][0].tolist()
    assert sorted(computed) == sorted((e, 1) for e in chosen)


def test_the_selection_bias_moves_the_choice_but_not_the_weights() -> None:
    module = layer(SIGMOID)
    x_ND = torch.randn(5, 7, dtype=torch.float64)
    module.router.bias[:] = 0.0
    weight, index = module.router(x_ND)
    module.router.bias += 3.0  # the same for all: nothing may change
    again, same = module.router(x_ND)
    assert torch.equal(index, same) and torch.equal(weight, again)
    torch.testing.assert_close(weight.sum(-1), torch.full((5,), 2.5, dtype=torch.float64))
