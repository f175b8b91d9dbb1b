"""Every estimator against exact values: a toy response has few enough masks and orders to sum over."""

from itertools import pairwise, permutations, product

import pytest
import torch

from dare.diffusion.counts import random_count
from dare.diffusion.estimate import estimate
from dare.diffusion.estimators import ESTIMATORS, Budget
from dare.diffusion.likelihood import elbo, score_view
from dare.diffusion.views import MIN_RATE
from dare.errors import DareError
from rows import keys, one_view, pack, repeat, text_rollouts
from toy import toy_model

PROMPT, RESPONSE, BLOCK, DRAWS = [1], [0, 1, 1, 0], 2, 20_000
SIZE = len(RESPONSE)
BOUNDS = ["random_rate", "random_count", "coupled", "antithetic", "block"]
ATTENTIONS = ["full", "block_causal"]


class Exact:
    """All masks of one response, scored once; ``logp`` maps a set of masked places to their log-probabilities."""

    def __init__(self, attention, seed=0):
        self.block_size = BLOCK if attention == "block_causal" else None
        self.model = toy_model(attention=attention, block_size=self.block_size, seed=seed)
        self.seqs = pack([(PROMPT, RESPONSE)], self.model.spec.pad_id)
        bits = torch.tensor(list(product([False, True], repeat=SIZE)))
        masked_NT = torch.cat([torch.zeros(len(bits), len(PROMPT), dtype=torch.bool), bits], dim=1)
        with torch.no_grad():
            self.table_NT = score_view(self.model, repeat(self.seqs, len(bits)), one_view(masked_NT), 0)[0]

    def logp(self, hidden):
        return self.table_NT[sum(2 ** (SIZE - 1 - place) for place in hidden), len(PROMPT) :]

    def chain(self, order):
        return sum(float(self.logp(order[step:])[place]) for step, place in enumerate(order))

    def chains(self):
        return torch.tensor([self.chain(order) for order in permutations(range(SIZE))], dtype=torch.float64)

    def elbo(self):
        return float(self.chains().mean())

    def estimator(self, name, **budget):
        return ESTIMATORS[name](Budget(block_size=self.block_size, **budget))

    def values(self, name, draws=DRAWS, **budget):
        """Independent draws of an estimator, its scores read from the table."""
        estimator = self.estimator(name, **budget)
        views = estimator.views(repeat(self.seqs, draws), keys(draws, name))
        return estimator.combine(self.look_up(views), views)

    def look_up(self, views):
        index_BK = views.masked_BKT[..., len(PROMPT) :].long() @ (2 ** torch.arange(SIZE).flip(0))
        return self.table_NT[index_BK] * views.scored_BKT


def _standard_error(values_N):
    return float(values_N.std()) / len(values_N) ** 0.5


def _eubo(exact, beta):
    """1/beta sum_i log E[L/k 1[i masked] p_i^beta], summed over all masks of k tokens, k uniform."""
    mean_R = torch.zeros(SIZE, dtype=torch.float64)
    masks = [[i for i in range(SIZE) if bits[i]] for bits in product([0, 1], repeat=SIZE)]
    for k in range(1, SIZE + 1):
        of_size = [hidden for hidden in masks if len(hidden) == k]
        for hidden in of_size:
            mean_R[hidden] += (beta * exact.logp(hidden)[hidden]).exp() / k / len(of_size)
    return float(mean_R.log().sum()) / beta


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_averages_to_the_elbo_over_all_orders(name, attention):
    if name == "block" and attention == "full":
        pytest.skip("block-causal models only")
    exact = Exact(attention)
    assert exact.estimator(name).kind == "bound"
    values_N, wanted = exact.values(name, count=2), exact.elbo()
    bias = SIZE * MIN_RATE * abs(wanted) if name == "random_rate" else 0.0
    assert abs(float(values_N.mean()) - wanted) < 4 * _standard_error(values_N) + bias
    assert _standard_error(values_N) < 0.01 * abs(wanted)  # or the comparison says nothing


def test_a_block_causal_bound_is_the_average_over_orders_inside_the_blocks():
    exact = Exact("block_causal")
    places = [(position - len(PROMPT), position // BLOCK) for position in range(len(PROMPT), len(PROMPT) + SIZE)]
    blocks = [[place for place, block in places if block == number] for number in sorted({b for _, b in places})]
    orders = [sum(parts, ()) for parts in product(*map(permutations, blocks))]
    assert sum(map(exact.chain, orders)) / len(orders) == pytest.approx(exact.elbo(), rel=1e-12)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_antithetic_pairs_sum_to_the_elbo_exactly(attention):
    exact, total, count = Exact(attention), 0.0, 0
    for order in permutations(range(SIZE)):
        for k in range(1, SIZE + 1):
            for hidden in (list(order[:k]), list(order[k - 1 :])):
                total += float(exact.logp(hidden)[hidden].sum()) * SIZE / len(hidden)
                count += 1
    assert total / count == pytest.approx(exact.elbo(), rel=1e-12)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_antithetic_pairs_vary_less_than_two_independent_subsets(attention):
    ratios = []
    for seed in range(10):
        exact = Exact(attention, seed)
        seqs = repeat(exact.seqs, 4000)
        views = random_count(seqs, keys(4000, "single"), count=1)
        independent = elbo(exact.look_up(views), views).var() / 2
        ratios.append(float(exact.values("antithetic", 4000, count=2).var() / independent))
    # never worse on the block-causal toys; on those with full attention better on average only
    assert sum(ratios) / len(ratios) < 0.9
    assert attention == "full" or max(ratios) < 1


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_the_upper_bound_grows_from_the_elbo_and_passes_the_likelihood(attention, seed):
    exact = Exact(attention, seed)
    rising = [exact.elbo()] + [_eubo(exact, beta) for beta in (1e-4, 0.5, 1.0, 1.5, 2.0, SIZE)]
    assert all(low <= high + 1e-9 for low, high in pairwise(rising))
    assert rising[1] == pytest.approx(rising[0], rel=1e-3)
    any_order = float(exact.chains().logsumexp(0) - torch.tensor(24.0).log())
    assert exact.elbo() <= any_order <= rising[-1]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_estimate_of_the_upper_bound_rises_to_it_with_more_views(attention):
    exact = Exact(attention)
    limit = _eubo(exact, 1.5)
    few_N, more_N, many_N = (
        exact.values("eubo", draws, count=count) for draws, count in ((4000, 2), (4000, 8), (200, 400))
    )
    assert exact.estimator("eubo").kind == "upper"
    assert float(few_N.mean()) < float(more_N.mean()) < limit
    assert float(many_N.mean()) == pytest.approx(limit, abs=4 * _standard_error(many_N) + 0.01)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_left_to_right_is_the_chain_rule(attention):
    exact = Exact(attention)
    model, ids, chain = exact.model, torch.tensor(PROMPT + RESPONSE), 0.0
    for position in range(len(PROMPT), len(ids)):
        end = len(ids) if attention == "full" else min(len(ids), (position // BLOCK + 1) * BLOCK)
        noised_T = torch.where(torch.arange(end) < position, ids[:end], model.spec.mask_id)
        with torch.no_grad():
            logits_TV = model.head(model.hidden(noised_T[None], torch.tensor([end]))[0])
        chain += float(logits_TV[position].log_softmax(-1)[ids[position]])
    found = estimate(model, exact.seqs, exact.estimator("left_to_right"), keys(1), draws=1)
    assert float(found.mean_B) == pytest.approx(chain, rel=1e-12)
    assert float(found.error_B) == 0
    assert int(found.forwards_B) == (SIZE if attention == "full" else BLOCK)


def test_a_trajectory_is_the_chain_along_its_recorded_order():
    exact, order = Exact("full"), (2, 0, 3, 1)
    rollouts = text_rollouts(exact.seqs)
    rollouts.unmask_step_BT[0, len(PROMPT) :] = torch.tensor(order).argsort()
    estimator = exact.estimator("trajectory", rollouts=rollouts)
    found = estimate(exact.model, exact.seqs, estimator, keys(1), draws=1)
    assert float(found.mean_B) == pytest.approx(exact.chain(order), rel=1e-12)
    with pytest.raises(DareError, match="other rows"):
        estimate(exact.model, repeat(exact.seqs, 2), estimator, keys(2), draws=1)


def test_mean_field_reads_one_pass_and_differs_from_the_bound():
    exact = Exact("full")
    found = estimate(exact.model, exact.seqs, exact.estimator("mean_field"), keys(1), draws=5)
    assert float(found.mean_B) == pytest.approx(float(exact.logp(range(SIZE)).sum()), rel=1e-12)
    assert int(found.forwards_B) == 1 and float(found.error_B) == 0
    assert abs(float(found.mean_B) - exact.elbo()) > 0.01


@pytest.mark.parametrize("name", ["random_count", "coupled", "antithetic", "block"])
def test_standard_errors_are_calibrated(name):
    exact, rows, draws = Exact("block_causal"), 300, 24
    found = estimate(exact.model, repeat(exact.seqs, rows), exact.estimator(name, count=2), keys(rows), draws)
    z_B = (found.mean_B - exact.elbo()) / found.error_B
    assert float((z_B.abs() < 4).double().mean()) > 0.99
    assert 0.75 < float(z_B.square().mean()) < 1.6  # 23 / 21 for a t distribution
    assert (found.forwards_B <= draws * exact.estimator(name, count=2).forwards).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_row_does_not_depend_on_its_company_or_padding(attention):
    exact = Exact(attention)
    pairs = [(PROMPT, RESPONSE), ([0, 1, 1], [1, 2])]
    seqs = pack(pairs, exact.model.spec.pad_id, extra=3)
    for name in ESTIMATORS.keys() - {"trajectory"} - ({"block"} if attention == "full" else set()):
        together = estimate(exact.model, seqs, exact.estimator(name), keys(2), draws=3)
        alone = estimate(exact.model, exact.seqs, exact.estimator(name), keys(1), draws=3)
        assert torch.allclose(together.mean_B[:1], alone.mean_B, rtol=0, atol=1e-10), name


def test_what_cannot_be_built_says_why():
    with pytest.raises(DareError, match="even number"):
        Budget(count=3)
    with pytest.raises(DareError, match="block-causal"):
        ESTIMATORS["block"](Budget())
    with pytest.raises(DareError, match="recorded rollout"):
        ESTIMATORS["trajectory"](Budget())
    exact = Exact("full")
    with pytest.raises(DareError, match="draws=1"):
        estimate(exact.model, exact.seqs, exact.estimator("random_rate"), keys(1), draws=1)
