import pytest
import torch

from dare.diffusion.cut import check_cut, cut_logp
from dare.diffusion.vocabulary import linear_logp
from dare.errors import DareError


def test_the_library_gives_the_same_values_and_gradients():
    pytest.importorskip("cut_cross_entropy", reason="pip install cut-cross-entropy triton")
    torch.manual_seed(0)
    ids_M, found = torch.tensor([3, 0, 6, 3]), []
    data = torch.randn(4, 8), torch.randn(7, 8)
    for read in (linear_logp, lambda *given: cut_logp(*given, impl="torch_compile")):
        hidden_MD, weight_VD = (one.clone().requires_grad_() for one in data)
        logp_M = read(hidden_MD, weight_VD, ids_M, 0.7).logp
        (logp_M * torch.tensor([1.0, -2.0, 0.5, 0.0])).sum().backward()
        found.append((logp_M.detach(), hidden_MD.grad, weight_VD.grad))
    torch.testing.assert_close(*found)


def test_it_is_refused_where_it_cannot_run(monkeypatch):
    with pytest.raises(DareError, match=r"engine\.device is 'cpu'"):
        check_cut("cpu")
    monkeypatch.setattr("dare.diffusion.cut.importlib.util.find_spec", lambda name: None)
    with pytest.raises(DareError, match="pip install 'cut-cross-entropy"):
        check_cut("cuda")
