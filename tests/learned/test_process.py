"""Process rewards: each step at its place, however many share a batch."""

from pathlib import Path

import pytest
import torch
from tiny_classifiers import asked, classifier
from transformers import AutoModelForTokenClassification, AutoTokenizer

from dare.errors import DareError
from dare.learned.process import along, prefix_reward, prefixes, process_reward, steps_of
from dare.learned.scalar import reward_model

STEPS = ["2+2 is 4.", "Times 3 is 12.", "So: 12"]
ANSWER = "\n\n".join(STEPS)


def test_a_step_is_judged_at_the_end_of_its_separator(tmp_path: Path) -> None:
    path = classifier(tmp_path, "qwen2_steps", 2)
    model, tokenizer = AutoModelForTokenClassification.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    pieces = [tokenizer(text)["input_ids"] for text in ("(2+2)*3", *(f"{step}\n\n" for step in STEPS))]
    logits = model(torch.tensor([[token for piece in pieces for token in piece]])).logits[0]
    ends = [sum(map(len, pieces[: number + 1])) - 1 for number in range(1, 4)]
    expected = logits[ends].softmax(1)[:, 1].tolist()
    reward = process_reward(path)
    assert reward.steps([ANSWER], prompt=[asked("(2+2)*3")])[0] == pytest.approx(expected, abs=1e-6)
    for name, value in (("min", min(expected)), ("mean", sum(expected) / 3), ("last", expected[-1])):
        assert process_reward(path, reduce=name)([ANSWER], prompt=[asked("(2+2)*3")]) == pytest.approx([value])
    product = expected[0] * expected[1] * expected[2]
    assert process_reward(path, reduce="product")([ANSWER], prompt=[asked("(2+2)*3")]) == pytest.approx([product])


@pytest.mark.parametrize("kind", ["qwen2_steps", "bert_steps"])
def test_a_batch_scores_as_each_text_alone(tmp_path: Path, kind: str) -> None:
    reward = process_reward(classifier(tmp_path, kind, 2))
    texts = [ANSWER, "one step", " \n\n ", "", "\n\na\n\n\n\nb\n\n"]
    prompts = [asked("q" * 5 * i) for i in range(5)]
    together = reward.steps(texts, prompt=prompts)
    assert [len(one) for one in together] == [3, 1, 0, 0, 2]
    for text, chat, steps in zip(texts, prompts, together, strict=True):
        assert reward.steps([text], prompt=[chat])[0] == pytest.approx(steps, abs=1e-5)
    assert [score is None for score in reward(texts, prompt=prompts)] == [False, False, True, True, False]


def test_a_text_over_the_limit_keeps_its_last_steps(tmp_path: Path) -> None:
    path = classifier(tmp_path, "qwen2_steps", 2)
    whole = process_reward(path)
    short = process_reward(path, max_tokens=len(STEPS[1]) + len(STEPS[2]) + 4)
    (steps,) = short.steps([ANSWER], prompt=[asked("(2+2)*3")])
    assert short.cut == 1
    assert steps == pytest.approx(whole.steps(["\n\n".join(STEPS[1:])], prompt=[asked("")])[0], abs=1e-5)


def test_steps_and_prefixes() -> None:
    assert steps_of(ANSWER, "\n\n", 64) == STEPS
    assert prefixes(ANSWER, "\n\n") == [STEPS[0], "\n\n".join(STEPS[:2]), ANSWER]
    many = steps_of("x\n\n" * 100_000, "\n\n", 64)
    assert len(many) == 64 and many[0] == "x" and many[-1].count("x") == 100_000 - 63
    assert steps_of("", "\n\n", 64) == prefixes(" ", "\n\n") == []


def test_along_scores_what_changed_and_skips_what_has_no_answer() -> None:
    seen: list[list[str]] = []

    def score(texts: list[str]) -> list[float | None]:
        seen.append(texts)
        return [float(text) if text else None for text in texts]

    assert along(score, ["", "", "1", "1", "3", "2"]) == 2.0
    assert seen == [["", "1", "3", "2"]]
    assert along(score, ["1", "3", "2"], "last") == 2.0
    assert along(score, ["1", "3", "2"], "min") == 1.0
    assert along(score, ["2", "3", "2"], "product") == 12.0
    assert along(score, []) is None and along(score, ["", ""]) is None


def test_a_prefix_reward_is_the_reward_model_along_the_prefixes(tmp_path: Path) -> None:
    path = classifier(tmp_path, "llama")
    scores = reward_model(path, sigmoid=True)(prefixes(ANSWER, "\n\n"), prompt=[asked("q")] * 3)
    reward = prefix_reward(path, reduce="min")
    assert reward([ANSWER, " "], prompt=[asked("q")] * 2) == [pytest.approx(min(scores), abs=1e-6), None]


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(DareError, match="did you mean 'mean'"):
        process_reward("x", reduce="men")
    with pytest.raises(DareError, match="separator=''"):
        process_reward("x", separator="")
    with pytest.raises(DareError, match="gives 3 labels"):
        process_reward(classifier(tmp_path, "qwen2_steps", 3))(["a"], prompt=[asked("q")])
    with pytest.raises(DareError, match="ends in ForTokenClassification"):
        process_reward(classifier(tmp_path, "qwen2", 2))(["a"], prompt=[asked("q")])
