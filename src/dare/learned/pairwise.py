"""A preference model: it compares two answers to one prompt."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

from dare.errors import DareError
from dare.learned.classifier import Classified, Classifier, Row
from dare.learned.text import Chat, chat_text, check_template, fill

TEMPLATE = "[CONTEXT] {context} [RESPONSE A] {first} [RESPONSE B] {second}"
"""The layout of RLHFlow's preference models (arXiv 2405.07863)."""

Compared = tuple[str, str, str]
"""The context and two answers, in the order in which the model reads them."""


def preference_model(
    path: str,
    *,
    batch: int = 8,
    device: str = "cpu",
    max_tokens: int | None = None,
    template: str = TEMPLATE,
) -> "PreferenceModel":
    """Return a reward that compares answers with the sequence classifier in the folder ``path``.

    ``template`` is the text that the model was trained on. A classifier with two labels gives the logits of "the first
    is better" and "the second is better"; one with a single label, the logit of "the first is better".
    """
    check_template("template", template, ["context", "first", "second"])
    return PreferenceModel(Classifier(path, "Sequence", batch, device, max_tokens), template)


class PreferenceModel(Classified):
    """The reward of a completion is its mean probability of winning against the others of its group.

    Every pair is compared in both orders and the two are averaged, so that a model that likes the first place gains
    nothing by it: the probabilities of a pair sum to 1, and the rewards of a group of n to n / 2. Equal answers draw,
    and so does an answer without others. A group of n different answers costs n (n - 1) passes.

    A text over ``max_tokens`` loses its beginning, which is the context; ``cut`` counts these texts.
    """

    def __init__(self, classifier: Classifier, template: str):
        self.classifier, self.template = classifier, template

    def __call__(
        self,
        completions: Sequence[str],
        *,
        prompt: Sequence[Chat],
        group: Sequence[Hashable] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the reward of each completion; without ``group``, those of equal prompts form one."""
        contexts = [chat_text(chat) for chat in prompt]
        members: dict[tuple[Hashable, str], list[int]] = defaultdict(list)
        for place, member in enumerate(zip(group or [None] * len(contexts), contexts, strict=True)):
            members[member].append(place)
        first = self._first_wins(
            (context, completions[one], completions[other])
            for (_group, context), places in members.items()
            for one, other in permutations(places, 2)
            if completions[one] != completions[other]
        )
        rewards: list[float | None] = [None] * len(completions)
        for (_group, context), places in members.items():
            texts = [completions[place] for place in places]
            for number, place in enumerate(places):
                rewards[place] = _share(context, texts[number], texts[:number] + texts[number + 1 :], first)
        return rewards

    def _first_wins(self, pairs: Iterable[Compared]) -> dict[Compared, float]:
        contests = list(dict.fromkeys(pairs))
        if self.classifier.labels > 2:
            raise DareError(
                f"{self.classifier.path} gives {self.classifier.labels} numbers; a preference model gives 1 or 2"
            )
        logits = self.classifier.logits([self._row(*contest) for contest in contests])
        return {
            contest: (one.softmax(0)[0] if len(one) == 2 else one[0].sigmoid()).item()
            for contest, one in zip(contests, logits, strict=True)
        }

    def _row(self, context: str, first: str, second: str) -> Row:
        plain = self.classifier.plain
        text = fill(self.template, context=context, first=plain(first), second=plain(second))
        chat = bool(self.classifier.tokenizer.chat_template)
        if chat:
            text = self.classifier.render([{"role": "user", "content": text}])
        return self.classifier.shorten(self.classifier.row(text, special=not chat))


def _share(context: str, own: str, others: Sequence[str], first: Mapping[Compared, float]) -> float:
    """The mean probability that ``own`` wins against the others; from both places, so that neither is favoured."""
    wins = [
        0.5 if other == own else (first[context, own, other] + 1 - first[context, other, own]) / 2 for other in others
    ]
    return sum(wins) / len(wins) if wins else 0.5
