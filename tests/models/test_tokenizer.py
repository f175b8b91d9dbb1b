import json
import shutil

import pytest

from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.errors import DareError
from dare.models.chat import encode_conversation, encode_prompt, response_texts
from dare.models.checkpoint import Checkpoint, load_checkpoint, save_model
from dare.models.tokenizer import load_tokenizer, tiny_token_ids, tiny_tokenizer
from rows import keys

TEXTS = [
    "",
    " ",
    "  lead and trail  ",
    "a ,b . c 's n't",
    "tab\tnew\nline\r\n",
    "3 + 4 = 7",
    "naïve Σ π e\u0301",
    "日本語 🙂👩\u200d👧",
    "\x00\x7f\ufffd",
]
SPECIAL = ["<|mask|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"]
CHATS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " π? \n"}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ],
]


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_round_trip(text):
    tokenizer = tiny_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text.encode())


def test_special_tokens_are_single_distinct_ids():
    tokenizer = tiny_tokenizer()
    ids = [tokenizer(token, add_special_tokens=False)["input_ids"] for token in SPECIAL]
    assert sorted(ids) == [[256 + i] for i in range(len(SPECIAL))]
    assert len(tokenizer) == tiny_token_ids()["vocab_size"] == 256 + len(SPECIAL)
    named = (tokenizer.mask_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert named == tuple(tiny_token_ids()[name] for name in ("mask", "eos", "pad"))


@pytest.mark.parametrize("chat", CHATS)
def test_prompt_is_a_prefix_of_the_conversation_with_one_open_header(chat):
    tokenizer = tiny_tokenizer()
    header = tokenizer.convert_tokens_to_ids("<|assistant|>")
    prompt, answer = encode_conversation(tokenizer, chat, " 4 ")
    full = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": " 4 "}], tokenize=False)
    assert tokenizer(full, add_special_tokens=False)["input_ids"] == [*prompt, *answer]
    assert prompt == encode_prompt(tokenizer, chat)
    assert tokenizer.decode(answer) == " 4 <|eos|>"
    assert prompt[-1] == header
    assert prompt.count(header) == 1 + sum(turn["role"] == "assistant" for turn in chat)


@pytest.mark.parametrize("name", ["tiny:masked", "tiny:block"])
def test_a_saved_tiny_model_reads_and_decodes_the_same(tmp_path, name):
    first = load_checkpoint(name, seed=3)
    save_model(tmp_path, first)
    second = load_checkpoint(str(tmp_path))
    prompt = encode_prompt(first.tokenizer, CHATS[0])
    assert encode_prompt(second.tokenizer, CHATS[0]) == prompt
    assert second.model.spec == first.model.spec
    texts = [_decode(checkpoint, prompt) for checkpoint in (first, second)]
    assert texts[0] == texts[1] and texts[0] != [""]


def test_dream_loads_and_saves_without_its_remote_code(shared, tmp_path):
    tokenizer = load_tokenizer(shared / "data/checkpoints/Dream-v0-Instruct-7B")
    tokenizer.save_pretrained(tmp_path)
    for copy in (tokenizer, load_tokenizer(tmp_path)):
        assert (copy.mask_token_id, copy.eos_token_id, copy.pad_token_id) == (151666, 151643, 151643)
        assert copy("hello<|im_end|>", add_special_tokens=False)["input_ids"] == [14990, 151645]


def test_a_tokenizer_without_its_vocabulary_is_refused(shared, tmp_path):
    folder = shared / "data/checkpoints/SDAR-8B-Chat"
    assert load_tokenizer(folder).convert_tokens_to_ids("<|im_end|>") == 151645
    shutil.copy(folder / "tokenizer_config.json", tmp_path)
    with pytest.raises(DareError, match=r"loads as 0, tokenizer_config\.json says 151643; copy the .* vocabulary"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    with pytest.raises(DareError, match="no usable tokenizer"):
        load_tokenizer(tmp_path)


def _decode(checkpoint: Checkpoint, prompt):
    decoding = DecodingConfig(max_new_tokens=8, stop_at_eos=False)
    rollouts = denoise(checkpoint.model, [prompt], decoding, keys(1), keys(1))
    return response_texts(checkpoint.tokenizer, rollouts)
