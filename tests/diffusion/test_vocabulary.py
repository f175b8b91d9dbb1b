"""Log-probabilities by parts of the vocabulary: values, gradients, memory."""

import pytest
import torch

from dare.diffusion.vocabulary import linear_logp, parts_of


def case(rows=7, width=5, vocab=23, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, width, dtype=dtype, generator=generator) for n in (rows, vocab))
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(0, vocab, (rows,), generator=generator)


@pytest.mark.parametrize("chunk", [None, 10_000, 21, 7, 1])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_of_a_log_softmax(chunk, temperature):
    hidden, weight, ids_M = case()
    found = linear_logp(hidden, weight, ids_M, temperature, entropy=True, chunk=chunk)
    logp_MV = (hidden @ weight.T / temperature).log_softmax(-1)
    wanted = logp_MV.gather(1, ids_M[:, None])[:, 0], -(logp_MV.exp() * logp_MV).sum(-1), logp_MV.amax(-1)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert not found.best.requires_grad
    found, wanted = found[:2], wanted[:2]
    ways = torch.randn(2, len(ids_M), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grads = [
        torch.autograd.grad(sum((w * x).sum() for w, x in zip(ways, pair, strict=True)), (hidden, weight))
        for pair in (found, wanted)
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_without_entropy_and_with_a_frozen_weight():
    hidden, weight, ids_M = case()
    logp_M, entropy_M, best_M = linear_logp(hidden, weight.detach(), ids_M, chunk=21)
    assert entropy_M is None and best_M is None
    logp_M.sum().backward()
    (wanted,) = torch.autograd.grad((hidden @ weight.T).log_softmax(-1).gather(1, ids_M[:, None]).sum(), hidden)
    torch.testing.assert_close(hidden.grad, wanted)


@pytest.mark.parametrize("chunk", [None, 21])
def test_extreme_logits_stay_finite(chunk):
    hidden, weight, ids_M = case()
    logp_M, entropy_M, _ = linear_logp(hidden * 1e6, weight, ids_M, entropy=True, chunk=chunk)
    (logp_M + entropy_M).sum().backward()
    assert logp_M.isfinite().all() and entropy_M.isfinite().all() and hidden.grad.isfinite().all()


def test_the_parts_cover_the_vocabulary():
    for rows, vocab in ((1, 5), (700, 126_464), (5000, 8192), (0, 10)):
        parts = parts_of(rows, vocab)
        assert [v for part in parts for v in range(part.start, part.stop)] == list(range(vocab))
    assert len(parts_of(700, 8192)) == 1 and len(parts_of(700, 126_464)) > 30
