"""Find the Python program in a completion or a prompt. Every function is linear in the length of the text.

Nothing untrusted is parsed here, only split at lines: compiling hostile text is left to the sandbox.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

MAX_CODE = 200_000
"""A longer program is no answer."""

_FENCE = re.compile(r"^[ \t]*```[ \t]*([^\s`]*)[^\n]*$", re.MULTILINE)
_LANGUAGES = ("", "python", "py", "python3")
_DEF = re.compile(r"^(?:async )?def[ \t]+(\w+)|^class[ \t]+(\w+)", re.MULTILINE)
_CODE = re.compile(
    r"^(?:import \w|from [\w.]+ import\b|(?:async )?def \w|class \w|@\w|print\("
    r"|(?:for|while|if|try|with)\b[^\n]*:[ \t]*(?:#.*)?$|[a-zA-Z_]\w*(?:, *\w+)*[ \t]*=(?!=))",
    re.MULTILINE,
)
_PROSE = re.compile(
    r"^(?:[A-Z][\w']*[,:]?[ \t]+[A-Za-z](?![^\n]*=)|[A-Z][\w ]*:[ \t]*$|```|#{2,} |\[|- |\*|\d+\. )", re.MULTILINE
)
_TRIPLE = re.compile("\"{3}|'{3}")
_WORD = re.compile(r"\w+")


def program_of(completion: str, name: str | None = None, continues: bool = False) -> str | None:
    """Return the program in ``completion``, or ``None`` without one.

    Text up to ``</think>`` is left out. Of few-shot marks, the first ``[BEGIN]…[DONE]`` counts, or what precedes
    ``[DONE]`` when the prompt has opened it. Of Python fences, the last that defines ``name``, else the last that
    defines anything, else the last; always whole, helpers included. Without a fence: from the first line that looks
    like code to the first line of prose. ``continues`` takes an indented start as the body of a function.
    """
    text = _between_marks(completion.rpartition("</think>")[2].replace("\r\n", "\n"))
    blocks = _blocks(text, continues)
    defining = [block for block in blocks if name in defined(block)] or [block for block in blocks if defined(block)]
    program = (defining or blocks)[-1] if blocks else _raw(text, continues)
    return program if program and program.strip() and len(program) <= MAX_CODE else None


def defined(program: str) -> list[str]:
    """Return the names of the functions and classes at the top level, in order."""
    return [match[1] or match[2] for match in _DEF.finditer(program)]


def main_function(program: str) -> str | None:
    """Return the function that a program is about: the last that no other of its functions mentions, else the last."""
    starts = [(match.start(), match[1]) for match in _DEF.finditer(program) if match[1]]
    ends = [start for start, _ in starts[1:]] + [len(program)]
    mentioned: set[str] = set()
    for (start, own), end in zip(starts, ends, strict=False):
        body = (line for line in program[start:end].split("\n")[1:] if line[:1] in (" ", "\t"))
        mentioned |= {word for line in body for word in _WORD.findall(line)} - {own}
    names = [name for _, name in starts]
    return ([name for name in names if name not in mentioned] or names or [None])[-1]


def prompt_code(prompt: str | Iterable[Mapping[str, Any]]) -> str:
    """Return the code that a prompt, a text or turns, asks to complete: its last fence, or from its first code line."""
    if not isinstance(prompt, str):
        prompt = next((str(turn["content"]) for turn in reversed(list(prompt)) if turn["role"] == "user"), "")
    blocks = _blocks(prompt, False)
    start = _CODE.search(prompt)
    return blocks[-1] if blocks else prompt[start.start() :] if start else ""


def _between_marks(text: str) -> str:
    begin, done = text.find("[BEGIN]"), text.find("[DONE]")
    if begin >= 0 and not 0 <= done < begin:
        text, _, _ = text[begin + len("[BEGIN]") :].partition("[DONE]")
    elif done >= 0:
        text = text[:done]
    else:
        return text
    quoted = text.strip()
    return quoted[1:-1] if len(quoted) > 1 and quoted[0] == quoted[-1] == "'" and quoted[:3] != "'''" else text


def _blocks(text: str, continues: bool) -> list[str]:
    """The Python fences that are not blank; one that is never closed goes to the end."""
    fences = list(_FENCE.finditer(text))
    if len(fences) % 2 and not fences[0][1] and (before := _raw(text[: fences[0].start()], continues)):
        return [before]  # the prompt had opened a fence, which the first one here closes
    closing = [fence.start() for fence in fences[1::2]] + [len(text)]
    found = [
        textwrap.dedent(text[opening.end() : end].strip("\n"))
        for opening, end in zip(fences[::2], closing, strict=False)
        if opening[1].lower() in _LANGUAGES
    ]
    return [block for block in found if block.strip()]


def _raw(text: str, continues: bool) -> str | None:
    lines = text.lstrip("\n")
    if not (continues and lines[:1] in (" ", "\t") and lines.strip()):
        start = _CODE.search(text)
        if start is None:
            return None
        lines = text[start.start() :]
    return lines[: _prose(lines)]


def _prose(lines: str) -> int | None:
    """Where the first line of prose that is in no triple-quoted string starts."""
    read = quotes = 0
    for line in _PROSE.finditer(lines):
        quotes += len(_TRIPLE.findall(lines, read, line.start()))
        read = line.start()
        if quotes % 2 == 0:
            return read
    return None
