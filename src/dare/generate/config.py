"""What ``dare generate`` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from dare.config import Config
from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.traces.files import check_target


class GenerateConfig(Config):
    """Settings of ``dare generate``."""

    seed: int = Field(0, ge=0)
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    decoding: DecodingConfig = DecodingConfig()


@dataclass(frozen=True)
class Wishes:
    """The options of the command line: one of ``prompt``, ``text`` and ``chat``, and how to go about it.

    ``suffix`` is fixed text behind the answer; ``raw`` leaves out the chat template; ``n`` samples; ``stop`` strings
    that end an answer; ``trace`` shows the steps, ``html`` and ``save`` write them to files.
    """

    prompt: str | None = None
    text: str | None = None
    chat: bool = False
    suffix: str = ""
    raw: bool = False
    n: int = 1
    stop: tuple[str, ...] = ()
    trace: bool = False
    html: Path | None = None
    save: Path | None = None

    def check(self, decoding: DecodingConfig) -> None:
        """Raise ``DareError`` for options that contradict each other or the settings, and for files not writable."""
        for conflict, reason in self._conflicts(decoding):
            if conflict:
                raise DareError(reason)
        check_target(self.html, "--html", ".html")
        check_target(self.save, "--save", ".jsonl")

    def _conflicts(self, decoding: DecodingConfig) -> list[tuple[bool, str]]:
        asked = [name for name in ("prompt", "text", "chat") if getattr(self, name) not in (None, False)]
        infills, same = self.text is not None, decoding.temperature == 0 and not decoding.order_temperature
        return [
            (len(asked) != 1, f"got {' and '.join(asked) or 'no prompt'}; give one of --prompt, --text and --chat"),
            (infills and bool(self.suffix), "--suffix goes with --prompt; write it behind the masks of --text"),
            (bool(self.stop) and (infills or bool(self.suffix)), "--stop cuts an answer that text follows; remove it"),
            ("" in self.stop, "--stop '' would end every answer at once; give a text"),
            (
                infills and "max_new_tokens" in decoding.model_fields_set,
                "the masks in --text say how much to write; remove decoding.max_new_tokens",
            ),
            (
                self.chat and (bool(self.suffix) or self.raw or self.n > 1),
                "--chat answers once through the chat template; remove --suffix, --raw and --n",
            ),
            (self.n < 1, f"--n {self.n}: give at least 1"),
            (
                self.n > 1 and same and decoding.rule != "random",
                f"--n {self.n} samples would all be the same at decoding.temperature=0; set it above 0 or rule=random",
            ),
        ]
