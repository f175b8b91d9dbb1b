"""Chats and templates as plain text."""

import re
from collections.abc import Mapping, Sequence

from dare.errors import DareError

Chat = Sequence[Mapping[str, str]]
"""A row's prompt: turns with ``role`` and ``content``."""


def chat_text(chat: Chat) -> str:
    """Return the content of a single user turn, or of several turns each under its role."""
    if len(chat) == 1 and chat[0]["role"] == "user":
        return chat[0]["content"]
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in chat)


def encodable(text: str) -> str:
    """Replace what UTF-8 cannot express: lone surrogates, which tokenizers and servers refuse."""
    return text.encode(errors="replace").decode()


def fill(template: str, **values: str) -> str:
    """Put each value at its ``{name}``; every other brace, also one inside a value, stays as it is."""
    return re.sub(r"\{(" + "|".join(values) + r")\}", lambda found: values[found[1]], template)


def check_template(option: str, template: str, names: Sequence[str]) -> None:
    """Raise ``DareError`` for a template that leaves out one of ``names``."""
    missing = [f"{{{name}}}" for name in names if f"{{{name}}}" not in template]
    if missing:
        raise DareError(f"{option}={template[:60]!r} has no {' and no '.join(missing)}; write each of them once")
