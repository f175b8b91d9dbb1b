from dare.models.tokenizer import tiny_tokenizer
from dare.serving.text import Ending

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.convert_tokens_to_ids("<|eos|>")


def ids(text: str) -> list[int]:
    return TOKENIZER(text)["input_ids"]


def test_certain_text_only_grows() -> None:
    tokens = ids("naïve 漢字 🙂") + ids("é")[:1] + ids("ok") + ids("字")[:2] + [EOS, *ids("behind")]
    for stops in ((), ("k", "漢字 ?"), ("字 🙂é",)):
        ending = Ending(TOKENIZER, (EOS,), stops)
        sent = ""
        for count in range(len(tokens) + 1):
            now = ending.certain(tokens[:count])
            assert now.startswith(sent)
            sent = now
        assert ending.close(tokens).text.startswith(sent)


def test_the_beginning_of_a_stop_string_is_held_back() -> None:
    ending = Ending(TOKENIZER, (EOS,), ("END.",))
    assert ending.certain(ids("the EN")) == "the "
    assert ending.certain(ids("the ENt")) == "the ENt"
    assert ending.certain(ids("the END. more")) == "the "
    assert not ending.reached(ids("the END")) and ending.reached(ids("the END."))


def test_the_first_end_wins() -> None:
    ending = Ending(TOKENIZER, (EOS,), ("b", "c"))
    assert ending.close([*ids("axc"), *ids("b")]) == (ids("axc"), "ax", "stop")
    assert ending.close([*ids("a"), EOS, *ids("b")]) == ([*ids("a"), EOS], "a", "stop")
    assert ending.close(ids("aaa")) == (ids("aaa"), "aaa", "length")
