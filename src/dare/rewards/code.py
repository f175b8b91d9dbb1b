"""Grade programs by running them against tests, in a sandbox; see ``dare.sandbox``.

Options of all three: ``backend`` ("bwrap", "remote" with its ``url``, "unsafe"), ``seconds``, ``memory_mb`` of each
process, and, where tests are separate, ``partial``: the share of tests passed instead of all or nothing.
"""

import ast
import builtins
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dare.errors import DareError
from dare.rewards.code_cases import Assertions, Cases, matches, unit_test_cases
from dare.rewards.code_extract import defined, main_function, program_of, prompt_code
from dare.sandbox.base import Limits, Sandbox, open_sandbox
from dare.sandbox.testing import check_tests, outputs_of, passed_tests

LEAST_MEMORY_MB = 128
MOST_TESTS_IN_FULL = 10
"""A row of ``unit_tests`` has this many times ``seconds`` for all its tests together."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _Options:
    backend: str
    url: str | None
    seconds: float
    memory_mb: int
    partial: bool = False

    def __post_init__(self) -> None:
        if self.memory_mb < LEAST_MEMORY_MB:
            raise DareError(f"memory_mb is {self.memory_mb!r}; Python needs at least {LEAST_MEMORY_MB}")

    @property
    def sandbox(self) -> Sandbox:
        return open_sandbox(self.backend, self.url)

    def limits(self, times: int = 1) -> Limits:
        return Limits(seconds=self.seconds * times, memory_mb=self.memory_mb)

    def score(self, passed: Sequence[bool]) -> float:
        return sum(passed) / len(passed) if self.partial else float(all(passed))


def humaneval(
    completion: str,
    *,
    ground_truth: str,
    entry_point: str | None = None,
    prompt: str | Iterable[Mapping[str, Any]] = "",
    backend: str = "bwrap",
    url: str | None = None,
    seconds: float = 10.0,
    memory_mb: int = 512,
    **_: Any,
) -> float | None:
    """Grade a function by HumanEval or HumanEval+ tests: 1.0 if ``check`` passes, else 0.0; ``None`` without code.

    ``ground_truth`` defines ``check(candidate)``. The candidate is ``entry_point``, else the last function of
    ``prompt``, else the last function of the program that its others do not use. The program follows the code of the
    prompt, whose helpers the tests take from there and not from the program; a completion that does not define the
    function is its body. HumanEval: Chen et al., 2021; HumanEval+: EvalPlus (Liu et al., 2023).
    """
    options = _Options(backend, url, seconds, memory_mb)
    start = prompt_code(prompt)
    name = entry_point or next(reversed(defined(start)), None)
    program = program_of(completion, name, continues=bool(start))
    if program is None:
        return None
    name = name or main_function(program)
    check_tests("ground_truth", [ground_truth])
    passed = passed_tests(
        options.sandbox,
        _readings(start, program, name),
        [f"{ground_truth}\n\ncheck(candidate)"],
        setup=_helpers(start, name),
        entry=name or "candidate",
        limits=options.limits(),
    )
    return options.score(passed)


def mbpp(
    completion: str,
    *,
    ground_truth: str | Sequence[str],
    test_setup_code: str = "",
    backend: str = "bwrap",
    url: str | None = None,
    seconds: float = 10.0,
    memory_mb: int = 512,
    partial: bool = False,
    **_: Any,
) -> float | None:
    """Grade a program by assertions, a list or its JSON; ``None`` without code. MBPP: Austin et al., 2021.

    ``seconds`` are for all of them. One that kills the program fails those after it too.
    """
    tests = _json("ground_truth", ground_truth)
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        raise DareError(f"ground_truth is {str(ground_truth)[:80]!r}; a list of assertions is expected")
    options = _Options(backend, url, seconds, memory_mb, partial)
    return _by_assertions(completion, Assertions(tests, test_setup_code or ""), options, options.limits())


def unit_tests(
    completion: str,
    *,
    ground_truth: str | Mapping[str, Any] | Sequence[Any],
    backend: str = "bwrap",
    url: str | None = None,
    seconds: float = 6.0,
    memory_mb: int = 512,
    partial: bool = False,
    **_: Any,
) -> float | None:
    """Grade a program by its output for each input, by calls, or by assertions; ``None`` without code.

    ``ground_truth``, or its JSON, is ``{"inputs": [...], "outputs": [...]}`` with ``"fn_name"`` for calls (APPS, TACO),
    a list of ``{"input": ..., "output": ...}`` (LiveCodeBench), or a list of assertions. ``seconds`` are for each test,
    ten times as many for all. A program must end with status 0; how outputs compare: ``code_cases.matches``.
    """
    asked = unit_test_cases(_json("ground_truth", ground_truth))
    options = _Options(backend, url, seconds, memory_mb, partial)
    limits = options.limits(min(MOST_TESTS_IN_FULL, len(asked)))
    if isinstance(asked, Assertions):
        return _by_assertions(completion, asked, options, limits)
    program = program_of(completion)
    return None if program is None else _by_outputs(program, asked, options, limits)


def _by_assertions(completion: str, asked: Assertions, options: _Options, limits: Limits) -> float | None:
    check_tests("ground_truth", [asked.setup, *asked.tests])
    program = program_of(completion, _called(asked.tests))
    if program is None:
        return None
    tests = [asked.setup, *asked.for_program(defined(program))]
    _, *passed = passed_tests(options.sandbox, [_typing(program) + program, program], tests, limits=limits)
    return options.score(passed)


def _by_outputs(program: str, asked: Cases, options: _Options, limits: Limits) -> float:
    found = outputs_of(
        options.sandbox,
        [_typing(program) + program, program],
        asked.inputs,
        seconds=options.seconds,
        output_bytes=2 * max(len(text) for text in asked.outputs) + 65536,
        stop=not options.partial,
        limits=limits,
    )
    pairs = zip(found, asked.outputs, strict=True)
    return options.score([text is not None and matches(text, expected) for text, expected in pairs])


def _readings(start: str, program: str, name: str | None) -> list[str]:
    """The programs that a completion may mean, of which the first that compiles is run."""
    if name in defined(program):
        return [f"{start or _typing(program)}\n{program}", program]
    body = "\n".join(f"    {line}" for line in program.split("\n"))
    return [f"{start.rstrip()}\n{program}", f"{start.rstrip()}\n{body}"]


def _typing(program: str) -> str:
    """The import that annotations may lack; slow, so only where the program has one of its names."""
    return "from typing import *\n" if set(typing.__all__).intersection(_WORD.findall(program)) else ""


def _helpers(start: str, name: str | None) -> str:
    """What a prompt defines before the function that it asks for."""
    before, found, _ = start.partition(f"def {name}(")
    try:
        compile(before, "prompt", "exec")
    except (SyntaxError, ValueError):
        return ""
    return before if found else ""


def _called(tests: Sequence[str]) -> str | None:
    """The first function called that is no builtin, else the first called."""
    nodes = [node for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    names = [node.func.id for node in nodes if isinstance(node.func, ast.Name)]
    return next((name for name in names if not hasattr(builtins, name)), names[0] if names else None)


def _json(column: str, value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise DareError(f"{column} is no JSON ({error}): {value[:80]!r}") from error
