import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise, infill
from dare.decoding.speed import Speed
from dare.errors import DareError
from rows import keys
from toy import toy_model

KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": 4}}
PROMPTS = [[0], [1, 2, 3, 0, 1], [2, 1, 0]]
RULES = {
    "low_confidence": {},
    "random": {"rule": "random", "steps": 5},
    "entropy": {"rule": "entropy", "steps": 7},
    "margin": {"rule": "margin", "schedule": "timestep", "steps": 4},
    "maskgit": {"rule": "maskgit_plus", "order_temperature": 0.5, "steps": 5},
    "left_to_right": {"rule": "left_to_right", "schedule": "ascending"},
    "threshold": {"threshold": 0.4},
    "slow_threshold": {"threshold": 0.2, "steps": 5, "steps_bound": "maximum"},
    "factor": {"factor": 1.5},
    "entropy_bound": {"rule": "entropy", "entropy_bound": 1.0},
    "guided": {"cfg_scale": 1.0, "steps": 5},
    "remask": {"remask": "running_confidence", "steps": 5},
    "edit": {"threshold": 0.5, "edit_threshold": 0.3, "max_post_steps": 3},
    "penalty": {"repetition_penalty": 1.5, "eos": "last", "steps": 5},
    "discount": {"eos_discount": 0.1, "schedule": "ascending"},
    "prefix": {"cache": "prefix", "steps": 5},
    "dual": {"cache": "dual", "threshold": 0.4},
    "block": {"cache": "block", "threshold": 0.4},
}
ONE_KIND = {"prefix": "full", "dual": "full", "block": "block"}

kinds = pytest.mark.parametrize("kind", KINDS)


def _decode(model, prompts=PROMPTS, key_B=None, **settings):
    decoding = DecodingConfig(**{"stop_at_eos": False, "block_size": 4, **settings})
    key_B = keys(len(prompts)) if key_B is None else key_B
    return denoise(model, prompts, decoding, key_B, torch.arange(len(prompts)))


def _model(kind, seed=0):
    return toy_model(vocab_size=12, seed=seed, **KINDS[kind])


def _response(rollouts, row):
    where_T = rollouts.seqs.response_BT[row]
    return rollouts.seqs.ids_BT[row, where_T], rollouts.unmask_step_BT[row, where_T]


@kinds
@pytest.mark.parametrize("seed", range(3))
def test_an_unreachable_threshold_still_ends(kind, seed):
    model = _model(kind, seed)
    rollouts = _decode(model, max_new_tokens=9, threshold=1.0)
    assert (rollouts.forwards_B <= 9).all()
    for row in range(len(PROMPTS)):
        ids, steps = _response(rollouts, row)
        assert model.spec.mask_id not in ids
        assert sorted(set(steps.tolist())) == list(range(int(rollouts.forwards_B[row])))


@kinds
@pytest.mark.parametrize(
    ("length", "block", "steps"),
    [(10, 4, 3), (10, 4, 50), (10, 4, None), (3, 8, None), (3, 8, 50), (7, None, 3), (1, 1, 1)],
)
def test_any_length_block_and_steps_fill_the_canvas(kind, length, block, steps):
    model = _model(kind)
    prompts = [*PROMPTS, []]
    rollouts = _decode(model, prompts, max_new_tokens=length, block_size=block, steps=steps)
    assert (rollouts.seqs.response_BT.sum(1) == length).all()
    assert not (rollouts.seqs.ids_BT == model.spec.mask_id).any()
    for row, prompt in enumerate(prompts):
        assert rollouts.seqs.ids_BT[row, : len(prompt)].tolist() == prompt
        assert (_response(rollouts, row)[1] >= 0).all()


@kinds
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_decodes_the_same_alone(kind, rule, temperature):
    if ONE_KIND.get(rule, kind) != kind:
        pytest.skip("a cache of the other kind of model")
    model, key_B = _model(kind), keys(3, "alone")
    settings = {"max_new_tokens": 10, "temperature": temperature, **RULES[rule]}
    together = _decode(model, key_B=key_B, **settings)
    for row, prompt in enumerate(PROMPTS):
        alone = _decode(model, [prompt], key_B[row : row + 1], **settings)
        for first, second in zip(_response(together, row), _response(alone, 0), strict=True):
            assert torch.equal(first, second)
        assert together.forwards_B[row] == alone.forwards_B[0]
        width = len(prompt) + 10
        assert torch.allclose(together.logp_BT[row, :width], alone.logp_BT[0, :width], atol=1e-6)
    assert not (together.seqs.ids_BT == model.spec.mask_id).any()


@kinds
def test_keys_change_samples_and_not_greedy_choices(kind):
    model = _model(kind)
    for temperature, same in ((0.0, True), (1.0, False)):
        first, second = (
            _decode(model, key_B=keys(3, name), max_new_tokens=10, temperature=temperature) for name in "ab"
        )
        assert torch.equal(first.seqs.ids_BT, second.seqs.ids_BT) == same


@pytest.mark.parametrize(
    ("length", "block", "steps", "counts"),
    [
        (7, 7, 3, [3, 2, 2]),
        (10, 4, 3, [2, 2, 2, 2, 1, 1]),
        (10, 4, 5, [2, 2, 2, 2, 1, 1]),
        (8, 4, 6, [2, 1, 1, 2, 1, 1]),
        (6, 6, 50, [1] * 6),
    ],
)
def test_steps_share_each_block_evenly_remainder_first(length, block, steps, counts):
    rollouts = _decode(_model("full"), max_new_tokens=length, block_size=block, steps=steps)
    for row in range(len(PROMPTS)):
        assert torch.bincount(_response(rollouts, row)[1]).tolist() == counts
        assert rollouts.forwards_B[row] == len(counts)
    assert len(counts) <= -(-length // block) * max(1, -(-steps * block // length))


@kinds
def test_a_block_is_done_before_the_next_begins(kind):
    rollouts = _decode(_model(kind), max_new_tokens=10, rule="random")
    for row, prompt in enumerate(PROMPTS):
        steps = _response(rollouts, row)[1]
        block = (torch.arange(10) + (len(prompt) if kind == "block" else 0)) // 4
        for earlier in range(int(block[0]), int(block[-1])):
            assert steps[block == earlier].max() < steps[block == earlier + 1].min()


@kinds
def test_the_step_record_replays_every_state(kind):
    model = _model(kind)
    rollouts = _decode(model, max_new_tokens=10, rule="random", steps=8)
    for row, prompt in enumerate(PROMPTS):
        ids, steps = rollouts.seqs.ids_BT[row, : len(prompt) + 10], rollouts.unmask_step_BT[row, : len(prompt) + 10]
        assert sorted(set(steps.tolist()) - {-1}) == list(range(int(rollouts.forwards_B[row])))
        for step in range(int(rollouts.forwards_B[row])):
            state = torch.where(steps >= step, model.spec.mask_id, ids)
            with torch.no_grad():
                logits_TV = model.head(model.hidden(state[None], torch.tensor([len(state)])))[0]
            logits_TV[:, model.spec.mask_id] = -torch.inf
            assert torch.equal(logits_TV.argmax(-1)[steps == step], ids[steps == step])


@kinds
@pytest.mark.parametrize("rule", ["low_confidence", "threshold", "remask", "edit"])
def test_no_token_budget_changes_a_result(kind, rule):
    texts = [[0, 11, 11, 2, 11], [3, *[11] * 8], [1, 2], [2, 1, 0, 11, 11, 11, 3, 3, 3, 3, 3], [11, 0]]
    decoding = DecodingConfig(block_size=4, temperature=1.0, max_new_tokens=9, **RULES[rule])
    found, passes = [], []
    for tokens in (1, 11, 25, 40, 10**6):
        seen: list[int] = []
        watch = lambda rows, seen=seen: seen.append(len(rows))  # noqa: E731
        found.append(infill(_model(kind), texts, decoding, keys(5), torch.arange(5), tokens=tokens, watch=watch))
        assert max(seen) == max(1, min(4, tokens // 11)), "four rows have masks, the longest has 11 positions"
        passes.append(len(seen))
    assert passes == sorted(passes, reverse=True) and passes[0] > passes[-1]
    for other in found[1:]:
        for name in ("unmask_step_BT", "forwards_B", "counted_BT"):
            assert torch.equal(getattr(other, name), getattr(found[0], name))
        assert torch.equal(other.seqs.ids_BT, found[0].seqs.ids_BT)
        assert torch.allclose(other.logp_BT, found[0].logp_BT, atol=1e-10)


@kinds
def test_speed_counts_what_the_rollouts_record(kind):
    speed, decoding = Speed(), DecodingConfig(block_size=4, temperature=2.0, max_new_tokens=10, steps=5)
    rollouts = denoise(_model(kind), PROMPTS * 3, decoding, keys(9), torch.arange(9), rows=4, watch=speed)
    assert speed.rows == 9 and speed.settled == 90 and speed.forwards == rollouts.forwards_B.sum()
    assert speed.tokens == (rollouts.unmask_step_BT >= 0).sum()


@kinds
def test_broken_weights_give_an_error_and_no_text(kind):
    model = _model(kind)
    model.blocks[1].attention.v.weight.data[0, 0] = torch.nan
    with pytest.raises(DareError, match="NaN"):
        _decode(model, max_new_tokens=6)
