"""A ``transformers`` classifier in a local folder: what every reward that runs a model here shares."""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dare.errors import DareError
from dare.learned.text import Chat, encodable

if TYPE_CHECKING:
    from torch import Tensor

Row = dict[str, list[int]]
"""One tokenized text: ``input_ids``, and ``token_type_ids`` where the model takes them."""


class Classifier:
    """A sequence or token classifier, loaded at its first use; ``cut`` counts the texts that were too long.

    ``max_tokens`` None: as many as the model was made for.
    """

    def __init__(self, path: str, head: Literal["Sequence", "Token"], batch: int, device: str, max_tokens: int | None):
        if batch < 1:
            raise DareError(f"batch={batch}; write how many texts to score at once, 1 or more")
        if max_tokens is not None and max_tokens < 2:
            raise DareError(f"max_tokens={max_tokens}; write 2 or more, or leave it out")
        self.path, self.head, self.batch, self.device = Path(path), head, batch, device
        self.max_tokens, self.cut = max_tokens, 0

    @cached_property
    def tokenizer(self) -> Any:
        """The folder's own tokenizer."""
        from dare.models.tokenizer import load_tokenizer

        return load_tokenizer(self.path)

    @cached_property
    def model(self) -> Any:
        """The classifier, ready to score."""
        from dare.learned.loading import load_classifier

        return load_classifier(self.path, self.head, self.device)

    @property
    def labels(self) -> int:
        """How many numbers the head gives."""
        return self.model.config.num_labels

    @cached_property
    def limit(self) -> int:
        """Tokens that a text may have."""
        config = self.model.config.get_text_config()
        most = min(self.tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or sys.maxsize)
        if self.max_tokens is not None and self.max_tokens > most:
            raise DareError(f"max_tokens={self.max_tokens}; {self.path} reads {most} tokens at most")
        return self.max_tokens or most

    def plain(self, untrusted: str) -> str:
        """Replace special tokens that are spelled out, so that an answer cannot close its turn and open another."""
        return self._special.sub(" ", untrusted)

    def render(self, chat: Chat) -> str:
        """Return a chat in the tokenizer's template; turns that the template refuses are a ``DareError``."""
        from jinja2 import TemplateError

        try:
            return self.tokenizer.apply_chat_template([dict(turn) for turn in chat], tokenize=False)
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in chat)
            raise DareError(f"{self.path}: its chat template cannot render turns of {roles}: {error}") from error

    def row(self, text: str, pair: str | None = None, *, special: bool) -> Row:
        """Tokenize a text or a pair; ``special`` adds the tokens that the tokenizer puts around it."""
        encoded = self.tokenizer(encodable(text), None if pair is None else encodable(pair), add_special_tokens=special)
        return {name: list(encoded[name]) for name in ("input_ids", "token_type_ids") if name in self._inputs(encoded)}

    def shorten(self, row: Row) -> Row:
        """Drop the beginning of a text that is too long, except for a special token in its first place."""
        over = len(row["input_ids"]) - self.limit
        if over <= 0:
            return row
        self.cut += 1
        head = int(row["input_ids"][0] in self.tokenizer.all_special_ids)
        return {name: values[:head] + values[head + over :] for name, values in row.items()}

    def logits(self, rows: Sequence[Row]) -> "list[Tensor]":
        """Return each row's logits on the CPU: (labels,) of a sequence classifier, (tokens, labels) of a token one.

        Rows of like length share a batch. Padding is on the right and hidden from the others, so a row's logits do not
        depend on its batch beyond rounding.
        """
        import torch

        found: dict[int, Tensor] = {}
        with torch.inference_mode():
            for places in self._batches(rows):
                try:
                    logits = self.model(**self._padded([rows[i] for i in places])).logits.float().cpu()
                except torch.OutOfMemoryError as error:
                    raise DareError(f"{self.path}: out of memory at batch={self.batch}; lower batch") from error
                found |= dict(zip(places, logits, strict=True))
        return [found[i] for i in range(len(rows))]

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
        # a sequence classifier without a padding token cannot tell where a padded text ends
        size = 1 if self.head == "Sequence" and self._pad is None else self.batch
        return (order[start : start + size] for start in range(0, len(order), size))

    def _padded(self, rows: Sequence[Row]) -> "dict[str, Tensor]":
        import torch

        longest = max(len(row["input_ids"]) for row in rows)
        filling = {"input_ids": self._pad or 0, "token_type_ids": 0, "attention_mask": 0}
        masked = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
        return {
            name: torch.tensor([row[name] + [filling[name]] * (longest - len(row[name])) for row in masked]).to(
                self.device
            )
            for name in masked[0]
        }

    @property
    def _pad(self) -> int | None:
        return self.model.config.get_text_config().pad_token_id

    @cached_property
    def _special(self) -> re.Pattern[str]:
        added = {str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        tokens = sorted(added | set(self.tokenizer.all_special_tokens), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, tokens)) or r"(?!)")

    def _inputs(self, encoded: Any) -> set[str]:
        return set(encoded) & set(inspect.signature(self.model.forward).parameters)


class Classified:
    """A reward that scores with a classifier."""

    classifier: Classifier

    @property
    def cut(self) -> int:
        """How many texts were too long so far."""
        return self.classifier.cut

    def counts(self) -> dict[str, int]:
        """Return what a log should tell."""
        return {"cut": self.cut}
