import json

import pytest

from dare.errors import DareError
from dare.models.tokens import SpecialIds, special_ids

NAMES = ("<|mask|>", "<|MASK|>", "<MASK>", "<|mdm_mask|>")
CHATML = {"eos_ids": (151643, 151645), "eot_id": 151645, "pad_id": 151643}
SDAR = SpecialIds(mask_id=151669, **CHATML)
PUBLISHED = {
    "LLaDA-8B-Instruct": SpecialIds(mask_id=126336, eos_ids=(126081, 126348), eot_id=126348, pad_id=126081),
    "Dream-v0-Instruct-7B": SpecialIds(mask_id=151666, **CHATML),
    "SDAR-8B-Chat": SDAR,
    "SDAR-30B-A3B-Chat": SDAR,
}
LLADA2 = ["LLaDA2.0-mini", "LLaDA2.1-mini"]
MASK, EOS, END = {"content": "<|mask|>", "id": 7}, {"content": "<|eos|>", "id": 8}, {"content": "<|eot_id|>", "id": 9}


def folder_of(tmp_path, **files):
    """A folder of JSON files, named without suffix."""
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_ids(shared, name):
    folder = shared / "data/checkpoints" / name
    assert special_ids(folder, json.loads((folder / "config.json").read_text()), NAMES) == PUBLISHED[name]


@pytest.mark.parametrize("name", LLADA2)
def test_llada2_needs_its_vocabulary_or_a_stated_mask(shared, tmp_path, name):
    """Its configs hold no mask id; its tokenizer lists one only in tokenizer.json, which this copy lacks."""
    folder = shared / "data/checkpoints" / name
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(DareError, match=r"no mask token id.*add mask_token_id to config\.json"):
        special_ids(folder, config, NAMES)
    expected = {"mask_id": 156895, "eos_ids": (156892,), "eot_id": None, "pad_id": 156892}
    assert special_ids(folder, {**config, "mask_token_id": 156895}, NAMES) == SpecialIds(**expected)
    listed = {"<|mask|>": 156895, "<|endoftext|>": 156892, "<|role_end|>": 156900}
    vocabulary = {"added_tokens": [{"content": token, "id": number} for token, number in listed.items()]}
    whole = folder_of(tmp_path, tokenizer=vocabulary)
    for part in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        (whole / part).write_text((folder / part).read_text())
    ends = {"eos_ids": (156892, 156900), "eot_id": 156900}
    assert special_ids(whole, config, NAMES) == SpecialIds(**(expected | ends))


def test_the_config_alone_is_enough(tmp_path):
    ids = special_ids(tmp_path / "none", {"mask_token_id": 0, "eos_token_id": 3}, ())
    assert ids == SpecialIds(mask_id=0, eos_ids=(3,), eot_id=None, pad_id=3)


def test_every_end_token_counts_and_the_configs_come_first(tmp_path):
    folder = folder_of(
        tmp_path,
        generation_config={"eos_token_id": [4, 3], "pad_token_id": 5, "mask_token_id": None},
        tokenizer_config={"eos_token": {"content": "<|eos|>"}, "mask_token": "<|mask|>"},
        tokenizer={"added_tokens": [MASK, EOS, END]},
    )
    assert special_ids(folder, {"eos_token_id": 3}, ()) == SpecialIds(7, (3, 4, 8, 9), 9, 5)
    assert special_ids(folder, {"eos_token_id": 3}, (), end_names=()) == SpecialIds(7, (3, 4, 8), None, 5)


def test_a_stated_mask_decides_between_two_spellings(tmp_path):
    folder = folder_of(tmp_path, added_tokens={"<|mask|>": 1, "<|MASK|>": 2, "<|im_end|>": 3})
    assert special_ids(folder, {"mask_token_id": 2}, NAMES).mask_id == 2
    with pytest.raises(DareError, match=r"'<\|mask\|>' is 1, added_tokens.json '<\|MASK\|>' is 2; .*mask_token_id"):
        special_ids(folder, {}, NAMES)


@pytest.mark.parametrize(
    ("config", "files", "message"),
    [
        ({"eos_token_id": 1}, {}, r"no mask token id: .* <\|mask\|> or .*; add mask_token_id to config\.json"),
        ({"mask_token_id": 1}, {}, r"no end token id .*; add eos_token_id to config\.json"),
        (
            {"mask_token_id": 1, "eos_token_id": 1},
            {},
            "config.json mask_token_id and config.json eos_token_id are both 1",
        ),
        (
            {"mask_token_id": 1, "eos_token_id": 2},
            {"tokenizer": {"added_tokens": [MASK]}},
            r"two mask tokens: config\.json mask_token_id is 1, tokenizer\.json '<\|mask\|>' is 7",
        ),
        (
            {"mask_token_id": 1, "eos_token_id": 2},
            {"generation_config": {"mask_token_id": 3}},
            r"config\.json mask_token_id is 1, generation_config\.json mask_token_id is 3; correct the wrong one",
        ),
        (
            {"mask_token_id": 2, "eos_token_id": 3},
            {"tokenizer_config": {"mask_token": "<m>"}, "added_tokens": {"<m>": 4}},
            r"config\.json mask_token_id is 2, added_tokens\.json '<m>' is 4",
        ),
    ],
)
def test_missing_and_contradictory_ids_are_named(tmp_path, config, files, message):
    folder = folder_of(tmp_path, **files)
    with pytest.raises(DareError, match=message) as refusal:
        special_ids(folder, config, NAMES)
    assert str(folder) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DareError, match=r"tokenizer\.json: not valid JSON"):
        special_ids(tmp_path, {"mask_token_id": 1, "eos_token_id": 2}, ())
