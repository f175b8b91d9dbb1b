"""A judge: a language model behind a chat endpoint that grades answers."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Literal

from dare.errors import DareError
from dare.learned.cache import Cache, question_key
from dare.learned.endpoint import Endpoint, Limits, NoAnswerError
from dare.learned.text import Chat, chat_text, check_template, fill
from dare.learned.verdict import PROMPT, defused, read_score

UNREAD, FAILED = "unread", "failed"


def judge(
    url: str,
    model: str,
    *,
    prompt: str = PROMPT,
    scale: tuple[float, float] = (1, 10),
    temperature: float | None = 0,
    max_answer_tokens: int | None = 1024,
    extra: Mapping[str, Any] | None = None,
    max_chars: int = 20_000,
    api_key_env: str | None = None,
    concurrency: int = 8,
    cache: str | None = None,
    on_failure: Literal["raise", "none"] = "raise",
    **limits: Any,
) -> "Judge":
    """Return a reward that asks ``model`` at ``url``, an endpoint of OpenAI's kind, to grade each completion.

    ``prompt`` has the places {question}, {answer}, {reference}, {low} and {high}. ``extra`` are further fields of the
    request. ``limits`` are the fields of ``Limits``: retries, timeout, patience, per_minute, max_calls, max_tokens.
    """
    check_template("prompt", prompt, ["question", "answer"])
    low, high = scale
    if not low < high:
        raise DareError(f"scale={tuple(scale)}; write the worst and the best score, as (1, 10)")
    if on_failure not in ("raise", "none"):
        raise DareError(f"on_failure={on_failure!r}; write raise or none")
    for name, value in (("concurrency", concurrency), ("max_chars", max_chars)):
        if value < 1:
            raise DareError(f"{name}={value}; write 1 or more")
    unknown = set(limits) - set(Limits.__dataclass_fields__)
    if unknown:
        raise DareError(f"judge: unknown option {min(unknown)!r}; limits: {', '.join(Limits.__dataclass_fields__)}")
    sampling = {"temperature": temperature, "max_tokens": max_answer_tokens}
    request = {"model": model, **{k: v for k, v in sampling.items() if v is not None}, **(extra or {})}
    endpoint = Endpoint(url, api_key_env, Limits(**limits))
    return Judge(endpoint, request, prompt, (low, high), max_chars, concurrency, Cache(cache), on_failure == "none")


@dataclass
class Judge:
    """Grades completions through an endpoint, several at a time, in their order.

    A score on the scale becomes one from 0 to 1; ``None`` where the reply has no score. Equal questions are asked once,
    in one batch, one run or, with a cache folder, ever; replies without a score are asked again. ``on_failure``: a
    question that gets no answer, also for want of budget, is a ``DareError`` or ``None``; a wrong URL, key or model is
    always a ``DareError``.

    An answer is text of the model in training and may address the judge. It is delimited and cannot close its
    delimiters, but it can still persuade: look at the best-graded answers of a run.
    """

    endpoint: Endpoint
    request: Mapping[str, Any]
    template: str
    scale: tuple[float, float]
    max_chars: int
    concurrency: int
    cache: Cache
    forgiving: bool
    lost: Counter[str] = field(default_factory=Counter)

    def __call__(
        self,
        completions: Sequence[str],
        *,
        prompt: Sequence[Chat],
        reference: Sequence[Any] | None = None,
        ground_truth: Sequence[Any] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the score of each completion; the reference is the column ``reference``, else ``ground_truth``."""
        references = reference or ground_truth or [None] * len(completions)
        bodies = [self._body(*one) for one in zip(prompt, completions, references, strict=True)]
        keys = [question_key(self.endpoint.name, self.scale, body) for body in bodies]
        found = self._grade(dict(zip(keys, bodies, strict=True)))
        outcomes = [found[key] for key in keys]
        self.lost.update(outcome for outcome in outcomes if isinstance(outcome, str))
        return [None if isinstance(outcome, str) else outcome for outcome in outcomes]

    def counts(self) -> dict[str, int]:
        """Return requests and tokens spent so far, and the completions whose reply was ``unread`` or never came."""
        spent = {"calls": self.endpoint.calls, "tokens": self.endpoint.tokens}
        return {**spent, UNREAD: self.lost[UNREAD], FAILED: self.lost[FAILED]}

    def _body(self, chat: Chat, completion: str, reference: Any) -> dict[str, Any]:
        low, high = (f"{end:g}" for end in self.scale)
        text = fill(
            self.template,
            question=chat_text(chat),
            answer=defused(completion, self.max_chars),
            reference="(none given)" if reference is None else str(reference),
            low=low,
            high=high,
        )
        return {**self.request, "messages": [{"role": "user", "content": text}]}

    def _grade(self, bodies: Mapping[str, dict[str, Any]]) -> dict[str, float | str]:
        """The outcome of each question; after an error that ends the run, no further question is asked."""
        known = {key: score for key in bodies if (score := self.cache.get(key)) is not None}
        stop = threading.Event()
        with ThreadPoolExecutor(self.concurrency) as pool:
            asked = {key: pool.submit(self._ask, key, bodies[key], stop) for key in bodies if key not in known}
            try:
                done, _ = wait(asked.values(), return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
        return {**known, **{key: future.result() for key, future in asked.items()}}

    def _ask(self, key: str, body: dict[str, Any], stop: threading.Event) -> float | str:
        try:
            reply = self.endpoint.ask(body, stop)
        except NoAnswerError:
            if not self.forgiving:
                raise
            return FAILED
        score = read_score(reply, *self.scale)
        if score is None:
            return UNREAD
        self.cache.put(key, score, reply)
        return score
