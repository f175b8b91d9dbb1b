"""Prompt and answer join to the rendered conversation, under every published chat template and some bad ones (T7)."""

import json

import pytest

from dare.errors import DareError
from dare.models.chat import encode_conversation, encode_prompt
from dare.models.tokenizer import load_tokenizer, tiny_tokenizer

CHATML = ("<|im_start|>assistant\n", "<|im_end|>")
ROLES = ("<role>ASSISTANT</role>", "<|role_end|>")
PUBLISHED = {
    "LLaDA-8B-Instruct": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "Dream-v0-Instruct-7B": CHATML,
    "SDAR-8B-Chat": CHATML,
    "SDAR-30B-A3B-Chat": CHATML,
    "LLaDA2.0-mini": ROLES,
    "LLaDA2.1-mini": ROLES,
}
"""Header and end token of an assistant turn."""

TURNS = [{"role": role, "content": text} for role, text in [("user", "2+2?"), ("assistant", "4"), ("user", "And 3+3?")]]
CHATS = {
    "one": TURNS[:1],
    "system": [{"role": "system", "content": "Be brief."}, *TURNS[:1]],
    "three": TURNS,
    "long": [*TURNS, {"role": "assistant", "content": "assistant"}, *TURNS[:1]],
}
ANSWERS = ["6", "It is 6.\n\nBecause 3+3=6.", "assistant", "<think>\nlong\n</think>\n\n6"]
TAGGED = (
    "{% for t in messages %}{% if t.role != 'assistant' %}U:{{ t.content }}\n{% else %}A:{{ t.content }}END{% endif %}"
)
ALWAYS = TAGGED.replace("END", "<|im_end|>") + "{% endfor %}A:"
NEVER = TAGGED.replace("END", "<|im_end|>\n") + "{% endfor %}"
OPEN = TAGGED.replace("END", "\n") + "{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
THINKS = OPEN.replace("}A:{% endif", "}A:<think>{% endif")
DEAF = "{% for t in messages %}{% if t.role == 'user' %}{{ t.content }}{% endif %}{% endfor %}"


def with_template(template, **tokens):
    """A byte tokenizer with ``template``; ``tokens`` are its named special tokens."""
    tokenizer = tiny_tokenizer()
    names = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|role_end|>"]
    tokenizer.add_tokens([*names, "<role>", "</role>"], special_tokens=True)
    tokenizer.add_special_tokens(tokens)
    tokenizer.chat_template = template
    return tokenizer


def published(shared, name):
    folder = shared / "data/checkpoints" / name
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    file = folder / "chat_template.jinja"
    template = file.read_text() if file.is_file() else settings["chat_template"]
    bos = settings["bos_token"]
    return with_template(template, eos_token=settings["eos_token"], **({"bos_token": bos} if bos else {}))


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(shared, name, chat, answer):
    tokenizer, (header, end) = published(shared, name), PUBLISHED[name]
    prompt, learned = encode_conversation(tokenizer, chat, answer)
    full = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": answer}], tokenize=False)
    closed = full[: full.rindex(end) + len(end)]
    assert [*prompt, *learned] == ids_of(tokenizer, closed)
    assert prompt == encode_prompt(tokenizer, chat)
    assert tokenizer.decode(prompt).endswith(header)
    answers = 1 + sum(turn["role"] == "assistant" for turn in chat)
    assert tokenizer.decode([*prompt, *learned]).count(header) == tokenizer.decode(prompt).count(header) == answers
    assert learned[-1] == tokenizer.convert_tokens_to_ids(end)
    assert tokenizer.decode(learned).endswith(answer + end)


@pytest.mark.parametrize("name", ["SDAR-8B-Chat", "SDAR-30B-A3B-Chat"])
def test_sdar_answers_open_with_an_empty_thought(shared, name):
    """Its template writes one into the last answer only: not into the prompt, nor into earlier answers."""
    tokenizer = published(shared, name)
    prompt, learned = encode_conversation(tokenizer, TURNS, "6")
    assert tokenizer.decode(learned) == "<think>\n\n</think>\n\n6<|im_end|>"
    assert "<think>" not in tokenizer.decode(prompt)


def test_the_real_vocabulary_joins_too(shared):
    """Merges reach across texts, so this is where a prompt could lose its last token to the answer."""
    tokenizer = load_tokenizer(shared / "data/checkpoints/Dream-v0-Instruct-7B")
    prompt, learned = encode_conversation(tokenizer, TURNS, "6 apples")
    assert [*prompt, *learned] == ids_of(tokenizer, tokenizer.decode([*prompt, *learned]))
    assert tokenizer.decode(learned) == "6 apples<|im_end|>"
    prompt, learned = encode_conversation(tokenizer, TURNS, "\n\n6")
    assert prompt == encode_prompt(tokenizer, TURNS)
    assert tokenizer.decode(learned) == "\n\n6<|im_end|>"


@pytest.mark.parametrize(
    ("template", "learned"),
    [(ALWAYS, "6<|im_end|>"), (NEVER, "6<|im_end|>"), (OPEN, "6")],
    ids=["header always", "header never", "no end token"],
)
def test_odd_templates_open_the_answer_once(template, learned):
    tokenizer = with_template(template)
    prompt, answer = encode_conversation(tokenizer, TURNS, "6")
    assert tokenizer.decode(prompt).endswith("U:And 3+3?\nA:")
    assert tokenizer.decode(answer) == learned
    assert tokenizer.decode([*prompt, *answer]).count("A:") == 2


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template; add chat_template.jinja"),
        (THINKS, "does not begin with the prompt"),
        (DEAF, "leaves out the assistant's turns"),
        ("{{ raise_exception('roles must alternate') }}", "turns of user.*: roles must alternate; change the turns"),
    ],
)
def test_unusable_templates_are_refused(template, message):
    with pytest.raises(DareError, match=message) as refusal:
        encode_conversation(with_template(template), TURNS, "6")
    assert "\n" not in str(refusal.value)
