"""A reward model: one number for a prompt and its answer, from a sequence classifier with one label."""

import math
from collections.abc import Sequence
from typing import Any

from dare.errors import DareError
from dare.learned.classifier import Classified, Classifier, Row
from dare.learned.text import Chat, chat_text


def reward_model(
    path: str,
    *,
    batch: int = 8,
    device: str = "cpu",
    max_tokens: int | None = None,
    center: float = 0.0,
    sigmoid: bool = False,
) -> "RewardModel":
    """Return a reward that scores with the sequence classifier in the folder ``path``.

    The score is the logit less ``center``, unbounded; with ``sigmoid``, that difference as a probability: what the
    Bradley-Terry model gives for winning against an answer whose logit is ``center``.
    """
    return RewardModel(Classifier(path, "Sequence", batch, device, max_tokens), center, sigmoid)


class RewardModel(Classified):
    """Scores completions in batches.

    The text is the prompt and the completion in the tokenizer's own chat template. A tokenizer without a template but
    with a separator token is a cross-encoder's and gets the prompt and the completion as its pair. What exceeds
    ``max_tokens`` is cut at the beginning, so the end of the completion always stays; ``cut`` counts these texts.
    """

    def __init__(self, classifier: Classifier, center: float, sigmoid: bool):
        self.classifier, self.center, self.sigmoid = classifier, center, sigmoid

    def __call__(self, completions: Sequence[str], *, prompt: Sequence[Chat], **_: Any) -> list[float | None]:
        """Return the score of each completion."""
        if self.classifier.labels != 1:
            raise DareError(f"{self.classifier.path} gives {self.classifier.labels} numbers; a reward model gives 1")
        pairs = zip(prompt, completions, strict=True)
        rows = [self.classifier.shorten(_row(self.classifier, chat, text)) for chat, text in pairs]
        return [self._score(logits.item()) for logits in self.classifier.logits(rows)]

    def _score(self, logit: float) -> float:
        return logistic(logit - self.center) if self.sigmoid else logit - self.center


def _row(classifier: Classifier, chat: Chat, completion: str) -> Row:
    answer = classifier.plain(completion)
    if classifier.tokenizer.chat_template:
        return classifier.row(classifier.render([*chat, {"role": "assistant", "content": answer}]), special=False)
    if classifier.tokenizer.sep_token:
        return classifier.row(chat_text(chat), answer, special=True)
    raise DareError(
        f"{classifier.path}: its tokenizer has neither a chat template nor a separator token, so it is unknown how "
        "the model reads a prompt and an answer; add the chat_template.jinja it was trained with"
    )


def logistic(value: float) -> float:
    """Return 1 / (1 + exp(-value)) without overflow."""
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)
