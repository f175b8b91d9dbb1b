"""Preference models: exact identities of a round robin in both orders."""

from itertools import combinations
from pathlib import Path

import pytest
from tiny_classifiers import asked, classifier

from dare.errors import DareError
from dare.learned.pairwise import preference_model

ANSWERS = ["4", "four", "maybe 5", "4"]


@pytest.mark.parametrize("kind", ["llama", "bert"])
@pytest.mark.parametrize("labels", [1, 2])
def test_rewards_of_a_group_sum_to_half_its_size(tmp_path: Path, kind: str, labels: int) -> None:
    model = preference_model(classifier(tmp_path, kind, labels), batch=3)
    texts = [*ANSWERS, "alone", *ANSWERS[:3]]
    prompts = [asked("2+2?")] * 4 + [asked("3+3?")] + [asked("4+4?")] * 3
    rewards = model(texts, prompt=prompts, group=[7, 7, 7, 7, 8, 9, 9, 9])
    assert sum(rewards[:4]) == pytest.approx(2.0)
    assert rewards[4] == 0.5
    assert sum(rewards[5:]) == pytest.approx(1.5)
    assert rewards[0] == rewards[3]
    assert len({round(reward, 3) for reward in rewards[:3]}) == 3


def test_two_answers_get_opposite_rewards_in_any_order(tmp_path: Path) -> None:
    model = preference_model(classifier(tmp_path, "llama", 2))
    for one, other in combinations(ANSWERS[:3], 2):
        first, second = model([one, other], prompt=[asked("q")] * 2, group=[0, 0])
        assert first == pytest.approx(1 - second)
        assert model([other, one], prompt=[asked("q")] * 2) == pytest.approx([second, first])
    assert model(["same", "same"], prompt=[asked("q")] * 2) == [0.5, 0.5]


def test_a_models_liking_for_a_place_cancels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = preference_model(classifier(tmp_path, "llama", 1))
    monkeypatch.setattr(model, "_first_wins", lambda pairs: dict.fromkeys(pairs, 0.9))
    assert model(["a", "b", "c"], prompt=[asked("q")] * 3) == pytest.approx([0.5] * 3)
    won = {("q", "a", "b"): 0.9, ("q", "b", "a"): 0.3, ("q", "a", "c"): 0.5, ("q", "c", "a"): 0.5}
    monkeypatch.setattr(model, "_first_wins", lambda pairs: {pair: won.get(pair, 0.5) for pair in pairs})
    # a beats b with (0.9 + 1 - 0.3) / 2 = 0.8 and draws with c
    assert model(["a", "b", "c"], prompt=[asked("q")] * 3) == pytest.approx([0.65, 0.35, 0.5])


def test_groups_and_prompts_are_never_compared_across(tmp_path: Path) -> None:
    model = preference_model(classifier(tmp_path, "llama", 2))
    assert model(["a", "b"], prompt=[asked("q")] * 2, group=["x", "y"]) == [0.5, 0.5]
    assert model(["a", "b"], prompt=[asked("q"), asked("r")], group=["x", "x"]) == [0.5, 0.5]


def test_braces_in_answers_are_text_and_long_contexts_are_cut(tmp_path: Path) -> None:
    model = preference_model(classifier(tmp_path, "llama", 2), max_tokens=120)
    assert sum(model(["{second}", "{context} {0}"], prompt=[asked("{first}")] * 2)) == pytest.approx(1.0)
    assert model.cut == 0
    assert sum(model(["a", "b"], prompt=[asked("c" * 500)] * 2)) == pytest.approx(1.0)
    assert model.cut == 2


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(DareError, match=r"no \{second\}"):
        preference_model(str(tmp_path), template="{context} {first}")
    with pytest.raises(DareError, match="gives 3 numbers"):
        preference_model(classifier(tmp_path, "llama", 3))(["a", "b"], prompt=[asked("q")] * 2)
