"""Process rewards: a score per step of an answer, or per denoising pass, reduced to one number."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dare.errors import DareError, nearest
from dare.learned.classifier import Classified, Classifier, Row
from dare.learned.scalar import reward_model
from dare.learned.text import Chat, chat_text
from dare.traces.trace import Trace

REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {
        "min": min,
        "mean": lambda scores: sum(scores) / len(scores),
        "last": lambda scores: scores[-1],
        "product": math.prod,
    }
)
"""How the scores of the steps become one: the weakest step, their mean, the last one, or all of them being right."""


def reduction(name: str) -> Callable[[Sequence[float]], float]:
    """Return the reduction called ``name``; an unknown name raises ``DareError``."""
    if name not in REDUCTIONS:
        raise DareError(f"reduce is {name!r}, which does not exist; {nearest(name, REDUCTIONS)}")
    return REDUCTIONS[name]


def along(
    score: Callable[[list[str]], Sequence[float | None]], texts: Sequence[str], reduce: str = "mean"
) -> float | None:
    """Score the texts that one answer went through, such as those after each denoising pass, and reduce to one number.

    ``score`` takes a list of texts. Texts that repeat their predecessor are left out, as are those without a score
    (``None``: no answer to be read yet); ``None`` if nothing is left.
    """
    changed = [text for text, before in zip(texts, [None, *texts], strict=False) if text != before]
    found = [one for one in (score(changed) if changed else []) if one is not None]
    return reduction(reduce)(found) if found else None


def steps_of(completion: str, separator: str, most: int) -> list[str]:
    """Split at ``separator`` and drop blank steps; the last of ``most`` steps keeps the rest of the text."""
    steps = [step for step in completion.split(separator) if step.strip()]
    return steps if len(steps) <= most else [*steps[: most - 1], separator.join(steps[most - 1 :])]


def prefixes(completion: str, separator: str, most: int = 64) -> list[str]:
    """Return the completion up to the end of each step, for ``along`` with a reward that scores whole texts."""
    steps = steps_of(completion, separator, most)
    return [separator.join(steps[: number + 1]) for number in range(len(steps))]


def prefix_reward(
    path: str,
    *,
    separator: str = "\n\n",
    reduce: str = "mean",
    batch: int = 8,
    device: str = "cpu",
    max_tokens: int | None = None,
    max_steps: int = 64,
) -> Callable[..., list[float | None]]:
    """Return a reward that scores the completion up to the end of each step with the reward model in ``path``.

    The scores are probabilities, as of ``reward_model`` with ``sigmoid``. ``None`` for a completion that is blank.
    """
    _check(separator, max_steps, reduce)
    model = reward_model(path, batch=batch, device=device, max_tokens=max_tokens, sigmoid=True)

    def reward(completions: Sequence[str], *, prompt: Sequence[Chat], **_: Any) -> list[float | None]:
        def one(chat: Chat, completion: str) -> float | None:
            texts = prefixes(completion, separator, max_steps)
            return along(lambda changed: model(changed, prompt=[chat] * len(changed)), texts, reduce)

        return [one(chat, completion) for chat, completion in zip(prompt, completions, strict=True)]

    return reward


def pass_reward(
    path: str,
    *,
    reduce: str = "mean",
    batch: int = 8,
    device: str = "cpu",
    max_tokens: int | None = None,
    max_steps: int = 16,
) -> Callable[..., list[float | None]]:
    """Return a reward that scores what was decided after each denoising pass with the reward model in ``path``.

    Of more than ``max_steps`` passes, evenly spaced ones are scored, the last among them. The scores are probabilities.
    ``None`` for a completion whose decoding was not recorded, and for one that is blank.
    """
    _check("\n", max_steps, reduce)
    model = reward_model(path, batch=batch, device=device, max_tokens=max_tokens, sigmoid=True)

    def reward(
        completions: Sequence[str], *, prompt: Sequence[Chat], trajectory: Sequence[Trace | None], **_: Any
    ) -> list[float | None]:
        def one(chat: Chat, trace: Trace | None) -> float | None:
            texts = [text for text in spaced(trace.texts() if trace else [], max_steps) if text.strip()]
            return along(lambda changed: model(changed, prompt=[chat] * len(changed)), texts, reduce)

        return [one(chat, trace) for chat, trace in zip(prompt, trajectory, strict=True)]

    return reward


def spaced(texts: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` of the texts, evenly spaced back from the last."""
    step = -(-len(texts) // most) or 1
    return [*texts[::-1][::step]][::-1]


def process_reward(
    path: str,
    *,
    separator: str = "\n\n",
    reduce: str = "min",
    batch: int = 8,
    device: str = "cpu",
    max_tokens: int | None = None,
    max_steps: int = 64,
) -> "ProcessReward":
    """Return a reward that scores each step with the token classifier in the folder ``path``.

    Its two labels are "wrong" and "right". ``reduce`` is ``min`` (Math-Shepherd, arXiv 2312.08935), ``product`` (Let's
    Verify Step by Step, arXiv 2305.20050), ``mean`` or ``last``. ``separator`` is the one the model was trained with.
    """
    _check(separator, max_steps, reduce)
    return ProcessReward(Classifier(path, "Token", batch, device, max_tokens), separator, reduce, max_steps)


class ProcessReward(Classified):
    """The probability that each step is right, reduced to one number; ``None`` for a completion that is blank.

    The text is laid out as TRL's ``PRMTrainer`` does in training: the beginning token if there is one, the prompt's
    text, then every step followed by the separator, tokenized apart; a step is judged at the last token of its
    separator. A text over ``max_tokens`` loses its beginning, and a step that is lost with it is not judged; ``cut``
    counts these texts.
    """

    def __init__(self, classifier: Classifier, separator: str, reduce: str, max_steps: int):
        self.classifier, self.separator = classifier, separator
        self.reduce, self.max_steps = reduction(reduce), max_steps

    def __call__(self, completions: Sequence[str], *, prompt: Sequence[Chat], **_: Any) -> list[float | None]:
        """Return the reduced score of each completion."""
        scores = self.steps(completions, prompt=prompt)
        return [self.reduce(one) if one else None for one in scores]

    def steps(self, completions: Sequence[str], *, prompt: Sequence[Chat], **_: Any) -> list[list[float]]:
        """Return the probability that a step is right, for each step of each completion."""
        if self.classifier.labels != 2:
            raise DareError(f"{self.classifier.path} gives {self.classifier.labels} labels; a process reward model 2")
        laid = [self._row(chat, text) for chat, text in zip(prompt, completions, strict=True)]
        logits = iter(self.classifier.logits([row for row, places in laid if places]))
        return [next(logits)[places].softmax(1)[:, 1].tolist() if places else [] for _, places in laid]

    def _row(self, chat: Chat, completion: str) -> tuple[Row, list[int]]:
        """The tokens, and the places of those that close a step."""
        begin = self.classifier.tokenizer.bos_token_id
        ids = ([] if begin is None else [begin]) + self._ids(chat_text(chat))
        ends, close = [], self._ids(self.separator)
        for step in steps_of(self.classifier.plain(completion), self.separator, self.max_steps):
            ids += self._ids(step) + close
            ends.append(len(ids) - 1)
        row = self.classifier.shorten({"input_ids": ids})
        lost, head = len(ids) - len(row["input_ids"]), int(row["input_ids"][:1] == ids[:1])
        return row, [end - lost for end in ends if end - lost >= head]

    def _ids(self, text: str) -> list[int]:
        return self.classifier.row(text, special=False)["input_ids"]


def _check(separator: str, max_steps: int, reduce: str) -> None:
    if not separator or max_steps < 1:
        raise DareError(f"separator={separator!r}, max_steps={max_steps}; write a text and a number from 1 up")
    reduction(reduce)
