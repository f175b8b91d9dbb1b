"""What the server sends: OpenAI's response and chunk objects, and our own fields beside theirs."""

import time
import uuid
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dare.serving.intake import Order
from dare.serving.protocol import ChatRequest
from dare.serving.scheduler import Decoded, State
from dare.serving.text import Answer


class Answers:
    """The objects of one response."""

    def __init__(self, order: Order, model: str):
        self.order, self.request, self.model = order, order.request, model
        self.chat = isinstance(order.request, ChatRequest)
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def whole(self, rows: Sequence[Decoded]) -> dict[str, Any]:
        """The response without streaming."""
        closed = [self.order.ending.close(row.ids) for row in rows]
        choices = [
            self._choice(index, row, answer) for index, (row, answer) in enumerate(zip(rows, closed, strict=True))
        ]
        head = self._head("chat.completion" if self.chat else "text_completion")
        return {**head, "choices": choices, "usage": self.usage([len(answer.ids) for answer in closed])}

    def chunk(self, index: int, text: str, state: State | None = None) -> dict[str, Any]:
        """A chunk with more text of choice ``index``, and with the denoising step that brought it, where asked."""
        choice = {"index": index, **self._piece(text), "logprobs": None, "finish_reason": None}
        return self._chunk([choice | ({} if state is None else self._denoising(state))])

    def opening(self, index: int) -> dict[str, Any]:
        """The first chunk of a chat's choice, which names the role."""
        delta = {"role": "assistant", "content": ""}
        return self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])

    def last(self, index: int, row: Decoded, answer: Answer, rest: str) -> dict[str, Any]:
        """The last chunk of a choice: the rest of its text, why it ended, and what is known of its tokens."""
        choice = {"index": index, **self._piece(rest), **self._facts(row, answer)}
        return self._chunk([choice | (self._denoising(row) if self.request.stream_steps else {})])

    def counts(self, tokens: Sequence[int]) -> dict[str, Any]:
        """The chunk after the last one, where asked for."""
        return {**self._chunk([]), "usage": self.usage(tokens)}

    def usage(self, tokens: Sequence[int]) -> dict[str, int]:
        """Token counts; an answer's end token counts, what lies behind it does not."""
        prompt, answer = sum(map(len, self.order.prompts)), sum(tokens)
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    def _head(self, kind: str) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return head if self.order.seed is None else {**head, "seed": self.order.seed}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk" if self.chat else "text_completion"), "choices": choices}

    def _piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}} if self.chat else {"text": text}

    def _denoising(self, row: State | Decoded) -> dict[str, Any]:
        return {"denoising": {"step": row.forwards, "tokens": self._tokens(row.ids)}}

    def _choice(self, index: int, row: Decoded, answer: Answer) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": answer.text}} if self.chat else {"text": answer.text}
        return {"index": index, **said, **self._facts(row, answer)}

    def _facts(self, row: Decoded, answer: Answer) -> dict[str, Any]:
        facts: dict[str, Any] = {"logprobs": None, "finish_reason": answer.reason}
        if self.request.wants_logprobs:
            facts["logprobs"] = self._logprobs(answer.ids, row.logps[: len(answer.ids)])
        if self.request.return_token_ids:
            facts["token_ids"] = answer.ids
        if self.request.return_step_maps:
            facts["step_maps"] = row.steps[: len(answer.ids)]
        if self.request.return_canvas:
            facts["canvas"] = row._asdict()
        return facts

    def _logprobs(self, ids: list[int], logps: list[float]) -> dict[str, Any]:
        tokens = self._tokens(ids)
        if self.chat:
            pairs = zip(tokens, logps, strict=True)
            return {"content": [{"token": t, "logprob": p, "bytes": None, "top_logprobs": []} for t, p in pairs]}
        offsets = [0, *accumulate(len(token or "") for token in tokens)][: len(ids)]
        return {"tokens": tokens, "token_logprobs": logps, "top_logprobs": None, "text_offset": offsets}

    def _tokens(self, ids: Sequence[int]) -> list[str | None]:
        ending = self.order.ending
        return [None if token == self.order.mask_id else str(ending.tokenizer.decode([token])) for token in ids]
