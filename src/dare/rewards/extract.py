"""Find the part of a completion that holds the answer. Every function is linear in the length of the text."""

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def last_tag(text: str, tag: str) -> str | None:
    """Return the stripped text of the last closed ``<tag>…</tag>``, or ``None`` without one."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    return None if start < 0 else text[start + len(tag) + 2 : end].strip()


def last_boxed(text: str) -> str | None:
    r"""Return the stripped content of the last ``\boxed{…}`` or ``\fbox{…}``, or ``None`` if absent or never closed.

    Braces are matched; escaped braces such as ``\{`` are content.
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    start, depth = boxes[-1].end(), 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start : brace.start()].strip()
    return None


def after_hashes(text: str) -> str | None:
    """Return the rest of the line after the last ``####`` (the GSM8K answer mark), or ``None`` if absent or blank."""
    _, mark, rest = text.rpartition("####")
    return rest.strip().partition("\n")[0].strip() or None if mark else None
