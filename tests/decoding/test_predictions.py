"""What every pass made of the whole text, and noise keys for spans of passes."""

from dataclasses import fields

import pytest
import torch

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.noise import key
from dare.diffusion.trajectory import replay
from dare.errors import DareError
from rows import keys
from toy import toy_model

PROMPTS = [[0], [1, 2, 3, 0, 1], [2, 1, 0]]
RULES = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "steps": 5},
    "one_block": {"temperature": 1.0, "block_size": None, "steps": 4},
    "stops": {"temperature": 1.0, "stop_at_eos": True},
    "threshold": {"temperature": 1.0, "threshold": 0.4},
    "remask": {"temperature": 1.0, "remask": "running_confidence", "block_size": None, "steps": 5},
    "edit": {"threshold": 0.5, "edit_threshold": 0.3, "max_post_steps": 2},
    "guided": {"cfg_scale": 1.0, "temperature": 0.5},
}
MODEL = toy_model(vocab_size=9)

rules = pytest.mark.parametrize("rule", RULES)


def _decode(rule, predictions=True, rows=64, **settings):
    decoding = DecodingConfig(**{"max_new_tokens": 8, "block_size": 4, "stop_at_eos": False, **RULES[rule], **settings})
    group_B = torch.arange(len(PROMPTS))
    return denoise(MODEL, PROMPTS, decoding, keys(len(PROMPTS)), group_B, rows=rows, predictions=predictions)


@rules
def test_recording_changes_nothing(rule):
    plain, recorded = _decode(rule, predictions=False), _decode(rule)
    for field in fields(plain):
        found, wanted = getattr(recorded, field.name), getattr(plain, field.name)
        if field.name == "seqs":
            assert torch.equal(found.ids_BT, wanted.ids_BT)
        elif isinstance(wanted, torch.Tensor):
            assert torch.allclose(found.double(), wanted.double(), atol=1e-6), field.name
    assert plain.predictions_BST is None and plain.confidence_BST is None


@rules
def test_company_changes_no_prediction(rule):
    together, alone = _decode(rule), _decode(rule, rows=1)
    assert torch.equal(together.predictions_BST, alone.predictions_BST)
    assert torch.allclose(together.confidence_BST, alone.confidence_BST, atol=1e-6)


@rules
def test_predictions_keep_what_stands_and_fill_every_mask(rule):
    rollouts = _decode(rule)
    passes = rollouts.predictions_BST.shape[1]
    assert passes == int(rollouts.forwards_B.max())
    step_BS = torch.arange(passes).expand(len(PROMPTS), -1)
    masked_BST = replay(rollouts, step_BS, MODEL.spec.mask_id).masked_BKT
    before_BST = rollouts.seqs.ids_BT[:, None] if rollouts.states_BST is None else rollouts.states_BST
    kept_BST = (~masked_BST & rollouts.seqs.valid_BT[:, None]).expand_as(rollouts.predictions_BST)
    assert torch.equal(rollouts.predictions_BST[kept_BST], before_BST.expand_as(kept_BST)[kept_BST])
    assert not (rollouts.predictions_BST == MODEL.spec.mask_id).any()
    sure_BST = rollouts.confidence_BST
    assert ((sure_BST >= 0) & (sure_BST <= 1)).all()
    live_BS1 = (step_BS < rollouts.forwards_B[:, None])[..., None]
    assert (sure_BST[masked_BST & live_BS1] > 0).all()
    assert not sure_BST[~rollouts.seqs.response_BT[:, None].expand_as(sure_BST)].any()


@pytest.mark.parametrize("rule", ["greedy", "sampled", "one_block", "threshold"])
def test_a_pass_predicts_what_it_decides(rule):
    rollouts = _decode(rule)
    for row, passes in enumerate(rollouts.forwards_B.tolist()):
        ids_T, step_T = rollouts.seqs.ids_BT[row], rollouts.unmask_step_BT[row]
        assert torch.equal(rollouts.predictions_BST[row, passes - 1], ids_T)
        assert torch.equal(rollouts.predictions_BST[row, -1], ids_T)
        for step in range(passes):
            known_T = (step_T >= 0) & (step_T <= step)
            assert torch.equal(rollouts.predictions_BST[row, step, known_T], ids_T[known_T])
            assert torch.equal(rollouts.confidence_BST[row, step, known_T], rollouts.confidence_BST[row, -1, known_T])


def test_against_the_model_itself():
    rollouts, spec = _decode("greedy"), MODEL.spec
    for row in range(len(PROMPTS)):
        for step in range(8):
            open_T = rollouts.unmask_step_BT[row] >= step
            canvas_T = torch.where(open_T, spec.mask_id, rollouts.seqs.ids_BT[row])
            with torch.no_grad():
                logits_TV = MODEL.head(MODEL.hidden(canvas_T[None], rollouts.seqs.lengths_B[row : row + 1])[0])
            logits_TV[:, spec.mask_id] = -torch.inf
            best = logits_TV.softmax(-1).max(-1)
            assert torch.equal(rollouts.predictions_BST[row, step, open_T], best.indices[open_T])
            assert torch.allclose(rollouts.confidence_BST[row, step, open_T].double(), best.values[open_T], atol=1e-6)


def test_running_confidence_never_falls():
    rollouts = _decode("remask")
    assert (rollouts.confidence_BST.diff(dim=1) >= 0).all()
    assert (rollouts.confidence_BST.diff(dim=1) > 0).any()


def test_behind_a_row_that_stopped_stands_its_text():
    found = False
    for rule in range(20):
        rollouts = _decode("stops", max_new_tokens=12, temperature=1.0 + rule / 10)
        for row, passes in enumerate(rollouts.forwards_B.tolist()):
            behind_ST = rollouts.predictions_BST[row, passes:]
            assert torch.equal(behind_ST, rollouts.seqs.ids_BT[row].expand_as(behind_ST))
            found = found or bool(len(behind_ST))
    assert found


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_cache_does_not_read_the_whole_text(cache):
    with pytest.raises(DareError, match=f"decoding.cache={cache}"):
        _decode("greedy", cache=cache)


def test_equal_keys_of_all_spans_change_nothing():
    decoding = DecodingConfig(max_new_tokens=8, block_size=4, steps=4, temperature=1.0, stop_at_eos=False)
    group_B = torch.arange(3)
    plain = denoise(MODEL, PROMPTS, decoding, keys(3), group_B)
    spans = denoise(MODEL, PROMPTS, decoding, keys(3)[:, None].expand(-1, 3), group_B)
    assert torch.equal(plain.seqs.ids_BT, spans.seqs.ids_BT) and torch.equal(plain.key_B, spans.key_B)


def test_rows_part_where_their_keys_do():
    decoding = DecodingConfig(max_new_tokens=12, block_size=4, steps=6, temperature=1.0, stop_at_eos=False)
    key_BL = torch.stack([keys(8)[:1].expand(8), key(keys(8), "later")], 1)
    rollouts = denoise(MODEL, [[1, 2]] * 8, decoding, key_BL, torch.zeros(8, dtype=torch.int64))
    early_BT = rollouts.unmask_step_BT[0] < 3
    assert (rollouts.seqs.ids_BT[:, early_BT] == rollouts.seqs.ids_BT[:1, early_BT]).all()
    assert len(rollouts.seqs.ids_BT.unique(dim=0)) > 4


@pytest.mark.parametrize(
    "settings, passes",
    [
        ({"steps": 4}, 4),
        ({"steps": None}, 8),
        ({"block_size": None, "steps": 5}, 5),
        ({"steps": 3}, None),
        ({"steps": 16}, None),
        ({"block_size": 3, "steps": None}, None),
        ({"threshold": 0.9}, None),
        ({"stop_at_eos": True}, None),
        ({"schedule": "timestep"}, None),
        ({"edit_threshold": 0.9}, None),
    ],
)
def test_passes_that_settings_alone_decide(settings, passes):
    decoding = DecodingConfig(**{"max_new_tokens": 8, "block_size": 4, "stop_at_eos": False, **settings})
    assert decoding.fixed_passes == passes
    if passes:
        rollouts = denoise(MODEL, PROMPTS, decoding, keys(3), torch.arange(3))
        assert (rollouts.forwards_B == passes).all()
