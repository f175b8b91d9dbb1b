import pytest
import torch

from dare.models.rope import rope_tables, rotate
from dare.models.transformer import Architecture, Transformer
from rows import pack
from toy import all_states, toy_model

BLOCK = 3
KINDS = {"full": {"attention": "full"}, "block": {"attention": "block_causal", "block_size": BLOCK}}
PAIRS = [([0], [1, 1, 0]), ([1, 0, 0, 1, 1], [0, 1, 1, 0, 0])]
IDS = [0, 1, 1, 0, 1, 0, 0, 1]


def _logits(model, ids, clean=None):
    ids_NT, clean_NT = torch.tensor([ids]), None if clean is None else torch.tensor([clean])
    with torch.no_grad():
        if clean is None:
            return model.head(model.hidden(ids_NT, torch.tensor([len(ids)])))[0]
        return model.head(all_states(model, ids_NT, clean_NT=clean_NT))[0]


def _differs(first, second):
    return (first - second).abs().amax(-1) > 1e-6


@pytest.mark.parametrize(("kind", "paired"), [("full", False), ("block", False), ("block", True)])
def test_a_row_is_the_same_alone_and_beside_a_longer_one(kind, paired):
    model = toy_model(**KINDS[kind])
    for pad_id in (model.spec.pad_id, 0, model.spec.mask_id):
        seqs = pack(PAIRS, pad_id, extra=2)
        with torch.no_grad():
            if paired:
                together_BTD = all_states(model, seqs.ids_BT, seqs.lengths_B, seqs.ids_BT)
            else:
                together_BTD = model.hidden(seqs.ids_BT, seqs.lengths_B)
            together_BTV = model.head(together_BTD)
        for row, (prompt, response) in enumerate(PAIRS):
            ids = prompt + response
            alone_TV = _logits(model, ids, ids if paired else None)
            assert torch.allclose(together_BTV[row, : len(ids)], alone_TV, rtol=0, atol=1e-12)


def test_a_block_sees_itself_and_earlier_blocks_only():
    model = toy_model(**KINDS["block"])
    before = _logits(model, IDS)
    for changed in range(len(IDS)):
        ids = [*IDS]
        ids[changed] = 1 - ids[changed]
        seen = torch.arange(len(IDS)) // BLOCK >= changed // BLOCK
        assert torch.equal(_differs(before, _logits(model, ids)), seen)
        assert torch.allclose(before[~seen], _logits(model, ids)[~seen], rtol=0, atol=1e-12)


def test_full_attention_looks_ahead():
    model = toy_model()
    assert _differs(_logits(model, IDS), _logits(model, [*IDS[:-1], 1 - IDS[-1]])).all()


def test_position_matters():
    model = toy_model()
    assert _differs(_logits(model, [0, 1, 0]), _logits(model, [0, 0, 1]))[0]


def test_a_clean_pair_equals_the_plain_pass():
    model = toy_model(**KINDS["block"])
    assert torch.allclose(_logits(model, IDS), _logits(model, IDS, IDS), rtol=0, atol=1e-12)


def test_the_pair_reads_clean_copies_of_earlier_blocks_alone():
    model = toy_model(**KINDS["block"])
    noised = [4] * len(IDS)
    before = _logits(model, noised, IDS)
    for changed in range(len(IDS)):
        other = [*IDS]
        other[changed] = 1 - other[changed]
        later = torch.arange(len(IDS)) // BLOCK > changed // BLOCK
        assert torch.equal(_differs(before, _logits(model, noised, other)), later)
        ids = [*noised]
        ids[changed] = 0
        own = torch.arange(len(IDS)) // BLOCK == changed // BLOCK
        assert torch.equal(_differs(before, _logits(model, ids, IDS)), own)


def test_a_tied_head_is_the_embedding():
    untied = toy_model()
    arch = Architecture(**{**vars(untied.arch), "tied": True})
    model = Transformer(arch, untied.spec).double()
    assert {name for name, _ in untied.named_parameters()} - {name for name, _ in model.named_parameters()} == {
        "unembed.weight"
    }
    hidden_MD = torch.randn(3, arch.hidden_size, dtype=torch.float64)
    assert torch.equal(model.head(hidden_MD), hidden_MD @ model.embed.weight.T)
    model.head(hidden_MD).sum().backward()
    assert torch.allclose(model.embed.weight.grad, hidden_MD.sum(0).expand_as(model.embed.weight))


def test_rotary_scores_depend_on_distance_alone():
    arch = toy_model().arch
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(arch.head_size, dtype=torch.float64, generator=generator).expand(9, 1, -1)
    turned_TD = rotate(x, rope_tables(torch.arange(9), arch.rotary_size, arch.rope_theta, torch.float64))[:, 0]
    score_TT = turned_TD @ turned_TD.T
    for distance in range(9):
        assert torch.allclose(score_TT.diagonal(distance), score_TT[0, distance].expand(9 - distance))
    assert (score_TT[0, 1:] < score_TT[0, 0]).all()
