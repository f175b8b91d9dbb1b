import pytest

from dare.decoding.config import DecodingConfig
from dare.decoding.describe import describe
from dare.errors import DareError
from toy import toy_model

FULL, BLOCK = toy_model().spec, toy_model(attention="block_causal", block_size=8).spec
DEFAULT_END = "stops after the block with an EOS\norder low_confidence, arg-max (temperature 0), "


@pytest.mark.parametrize(
    ("spec", "settings", "expected"),
    [
        (
            FULL,
            {},
            f"128 positions in 4 blocks of 32, 32 steps a block (1 token a step), {DEFAULT_END}no cache (exact)",
        ),
        (
            FULL,
            {"max_new_tokens": 12, "steps": 3},
            f"12 positions in one block, 3 steps a block (4 tokens a step), {DEFAULT_END}no cache (exact)",
        ),
        (
            BLOCK,
            {"threshold": 0.9},
            "128 positions in the model's own blocks of 8, every token of probability 0.9 or more (at least 1 a step), "
            f"{DEFAULT_END}block cache (exact)",
        ),
        (
            BLOCK,
            {"max_new_tokens": 16, "steps": 8, "stop_at_eos": False, "eos": "last", "edit_threshold": 0.5},
            "16 positions in the model's own blocks of 8, 4 steps a block (2 tokens a step), no stop at an EOS, EOS "
            "last\norder low_confidence, arg-max (temperature 0), edits above probability 0.5, block cache (exact)",
        ),
        (
            FULL,
            {
                "schedule": "timestep",
                "steps": 64,
                "rule": "entropy",
                "temperature": 0.2,
                "top_p": 0.95,
                "cache": "dual",
            },
            "128 positions in 4 blocks of 32, 16 steps a block (about 2 tokens a step), stops after the block with an "
            "EOS\norder entropy, temperature 0.2, top_p 0.95, dual cache (approximate)",
        ),
        (
            BLOCK,
            {"threshold": 0.9, "steps": 64, "steps_bound": "maximum", "cfg_scale": 1.5},
            "128 positions in the model's own blocks of 8, every token of probability 0.9 or more (at most 2 tokens a "
            "step), stops after the block with an EOS\norder low_confidence, arg-max (temperature 0), guidance 1.5, no "
            "cache (exact)",
        ),
    ],
)
def test_the_plan_in_words(spec, settings, expected):
    assert describe(DecodingConfig(**settings), spec) == expected


def test_masks_between_given_text_are_counted_apart():
    plan = describe(DecodingConfig(max_new_tokens=40, schedule="ascending"), FULL, masks=9)
    assert plan.startswith("9 masks over 40 positions in 2 blocks of 32, 1, 2, 4, ... tokens a step, ")
    assert "at most 8 steps a block" in describe(DecodingConfig(max_new_tokens=9), BLOCK, masks=7)


def test_a_cache_that_does_not_fit_is_refused():
    with pytest.raises(DareError, match="does not fit"):
        describe(DecodingConfig(cache="dual"), BLOCK)
