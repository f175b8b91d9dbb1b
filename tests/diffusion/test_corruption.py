from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch

from dare.diffusion.cart import cart_weight
from dare.diffusion.corruption import Corruption, with_wrong_tokens
from dare.diffusion.likelihood import elbo, score_view, score_views
from dare.diffusion.rates import SCHEDULES
from dare.diffusion.views import MIN_RATE, block_rate, join_views, random_rate
from dare.types import Sequences, Views
from rows import UNEQUAL, keys, one_view, pack, repeat
from toy import all_states, toy_model

PROMPT, ANSWER = [1], [0, 1, 0]
KINDS = {"full": {}, "block": {"attention": "block_causal", "block_size": 2}}
SAMPLERS = {
    "cosine": Corruption(schedule=SCHEDULES["cosine"]),
    "band": Corruption(low=0.3, high=0.8, weight="none"),
    "complementary": Corruption(low=0.3, high=0.7, complementary=True),
    "blocks": Corruption(block_size=2, complementary=True, weight="none"),
    "cart": Corruption(weight="cart"),
}


def any_order_bound(model) -> float:
    """The mean over orders within each block, blocks from left to right, of the log-probability of decoding so."""
    size, first = model.spec.block_size or 99, len(PROMPT)
    blocks: dict[int, list[int]] = {}
    for place in range(first, first + len(ANSWER)):
        blocks.setdefault(place // size, []).append(place)
    total, seqs = 0.0, pack([(PROMPT, ANSWER)], model.spec.pad_id)
    for places in blocks.values():
        orders = list(permutations(places))
        for order in orders:
            for number, place in enumerate(order):
                masked_BT = torch.zeros_like(seqs.response_BT)
                masked_BT[0, list(order[number:])] = True
                total += float(score_view(model, seqs, one_view(masked_BT), 0)[0][0, place].detach()) / len(orders)
    return total


def expectation(model, corruption: Corruption) -> float:
    """Over every mask, with its probability, and the rates: the quadrature is exact for such polynomials."""
    node, weight = np.polynomial.legendre.leggauss(24)
    spots = 1 if corruption.block_size is None else 2
    answer = slice(len(PROMPT), None)
    block_T = torch.arange(len(PROMPT) + len(ANSWER)) // (corruption.block_size or 99)
    masks_NR = torch.tensor(list(product([False, True], repeat=len(ANSWER))))
    seqs = repeat(pack([(PROMPT, ANSWER)], model.spec.pad_id), len(masks_NR))
    masked_NT = torch.zeros_like(seqs.response_BT)
    masked_NT[:, answer] = masks_NR
    sides = (masked_NT, seqs.response_BT & ~masked_NT)[: 1 + corruption.complementary]
    with torch.no_grad():
        logp_NKT = torch.stack([score_view(model, seqs, one_view(side_NT), 0)[0] for side_NT in sides], dim=1)
    total = 0.0
    for draw in product(range(len(node)), repeat=spots):
        time_T = torch.tensor([(node[place] + 1) / 2 for place in draw])[block_T]
        rate_T, rarity_T = corruption.schedule(time_T, corruption.low, corruption.high)
        rate_NT, rarity_NT = (part.expand(seqs.ids_BT.shape) for part in (rate_T, rarity_T))
        views = corruption.views(seqs, masked_NT, rate_NT, rarity_NT)
        chance_N = torch.where(masked_NT, rate_NT, 1 - rate_NT)[:, answer].prod(1)
        total += float((chance_N * elbo(logp_NKT, views)).sum()) * np.prod([weight[place] / 2 for place in draw])
    return total


@pytest.mark.parametrize("complementary", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("kind", "block_size"), [("full", None), ("block", None), ("block", 2)])
def test_with_elbo_weights_the_expectation_is_the_bound(kind, block_size, schedule, complementary):
    model = toy_model(**KINDS[kind])
    corruption = Corruption(SCHEDULES[schedule], low=0.0, block_size=block_size, complementary=complementary)
    assert expectation(model, corruption) == pytest.approx(any_order_bound(model), rel=1e-7)


@pytest.mark.parametrize("weight", ["none", "cart"])
def test_without_them_it_is_not(weight):
    model = toy_model()
    assert abs(expectation(model, Corruption(low=0.0, weight=weight)) / any_order_bound(model) - 1) > 0.1


def test_the_defaults_are_the_published_samplers_bit_for_bit():
    seqs, key_B = pack(UNEQUAL, 3, extra=2), keys(len(UNEQUAL))
    for ours, published in [
        (Corruption(), random_rate(seqs, key_B)),
        (Corruption(block_size=3), block_rate(seqs, key_B, block_size=3)),
    ]:
        views = ours(seqs, key_B)
        for field in ("masked_BKT", "weight_BKT", "rate_BKT"):
            assert torch.equal(getattr(views, field), getattr(published, field))


def test_drawn_masks_have_the_rates_of_the_schedule():
    seqs = repeat(pack([([0], [0, 1, 1, 0])], 3), 4000)
    for name, mean in (("linear", 0.5), ("cosine", 2 / np.pi)):
        views = Corruption(SCHEDULES[name], low=MIN_RATE)(seqs, keys(4000))
        share = float(views.masked_BKT.sum() / seqs.response_BT.sum())
        assert share == pytest.approx(mean, abs=0.025)


def test_a_mask_and_its_complement_train_every_answer_token_once():
    seqs = pack(UNEQUAL, 3, extra=2)
    views = SAMPLERS["blocks"](seqs, keys(len(UNEQUAL)))
    assert torch.equal(views.weight_BKT.sum(1), seqs.response_BT.double())
    assert torch.equal(views.masked_BKT, views.scored_BKT)
    assert torch.allclose(views.rate_BKT.sum(1), torch.ones(seqs.ids_BT.shape, dtype=torch.float64))


def test_cart_counts_prompt_and_visible_answer_but_no_padding():
    seqs = pack(UNEQUAL, 3, extra=4)
    views = SAMPLERS["cart"](seqs, keys(len(UNEQUAL)))
    for row in range(len(UNEQUAL)):
        length, masked_T = int(seqs.lengths_B[row]), views.masked_BKT[row, 0]
        alone_T = cart_weight(~masked_T[None, :length], 0.3)[0] * masked_T[:length]
        assert torch.allclose(views.weight_BKT[row, 0, :length], alone_T, rtol=1e-12)


def edited(seqs: Sequences, key_B: torch.Tensor, rate: float = 0.5) -> Views:
    views = SAMPLERS["band"](seqs, key_B)
    return with_wrong_tokens(views, seqs, key_B, rate=rate, weight=0.25, words_N=torch.tensor([0, 1]))


def test_wrong_tokens_stand_where_the_answer_is_visible_and_are_words():
    seqs = repeat(pack([([0, 1], [0, 1, 2, 2])], 3, extra=1), 4000)
    views = edited(seqs, keys(4000), rate=0.3)
    hit_BKT = views.scored_BKT & ~views.masked_BKT
    visible_BKT = seqs.response_BT[:, None] & ~views.masked_BKT
    assert not (hit_BKT & ~visible_BKT).any()
    assert float(hit_BKT.sum() / visible_BKT.sum()) == pytest.approx(0.3, abs=0.03)
    assert set(views.shown_BKT[hit_BKT].tolist()) == {0, 1}
    assert torch.equal(views.shown_BKT[~hit_BKT], seqs.ids_BT[:, None][~hit_BKT])
    assert (views.weight_BKT[hit_BKT] == 0.25).all() and (views.weight_BKT[views.masked_BKT] == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_reads_the_wrong_tokens_and_is_asked_for_the_true_ones(kind):
    model = toy_model(**KINDS[kind])
    seqs = pack(UNEQUAL, model.spec.pad_id)
    views = edited(seqs, keys(len(UNEQUAL)), rate=1.0)
    hit_BT = (views.scored_BKT & ~views.masked_BKT)[:, 0]
    assert (views.shown_BKT[:, 0] != seqs.ids_BT)[hit_BT].any()
    text_BT = torch.where(views.masked_BKT[:, 0], model.spec.mask_id, views.shown_BKT[:, 0])
    clean_BT = None if kind == "full" else seqs.ids_BT
    with torch.no_grad():
        logits_BTV = model.head(all_states(model, text_BT, seqs.lengths_B, clean_BT))
    true_BT = logits_BTV.log_softmax(-1).gather(2, seqs.ids_BT[..., None])[..., 0]
    logp_BT = score_views(model, seqs, views).logp_BKT[:, 0]
    assert torch.allclose(logp_BT[hit_BT], true_BT[hit_BT], rtol=1e-10)


@pytest.mark.parametrize("name", [*SAMPLERS, "edited"])
def test_views_of_a_row_ignore_company_and_padding(name):
    sampler, key_B = SAMPLERS.get(name, edited), keys(len(UNEQUAL))
    together = sampler(pack(UNEQUAL, 3, extra=4), key_B)
    for row, pair in enumerate(UNEQUAL):
        alone, width = sampler(pack([pair], 3), key_B[row : row + 1]), len(pair[0]) + len(pair[1])
        for field in ("masked_BKT", "weight_BKT", "rate_BKT", "shown_BKT"):
            if (whole := getattr(together, field)) is not None:
                assert torch.allclose(whole[row, :, :width].double(), getattr(alone, field)[0].double(), rtol=1e-12)
        assert not together.weight_BKT[row, :, width:].any()


def test_joined_views_show_what_each_showed():
    seqs, key_B = pack(UNEQUAL, 3), keys(len(UNEQUAL))
    wrong, right = edited(seqs, key_B), SAMPLERS["cosine"](seqs, key_B)
    both = join_views(wrong, right, seqs)
    assert torch.equal(both.shown_BKT[:, :1], wrong.shown_BKT) and torch.equal(both.shown_BKT[:, 1], seqs.ids_BT)
    assert torch.equal(both.weight_BKT[:, 1:], right.weight_BKT)
    assert join_views(right, right, seqs).shown_BKT is None
    assert replace(both, shown_BKT=None).masked_BKT.shape[1] == 2
