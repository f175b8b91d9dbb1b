"""The rewards by name.

A reward is a plain function ``(completion, *, ground_truth, <dataset columns>, **_)`` that returns a number, a record
of named parts, which count by their sum, or ``None``: no answer could be read, which counts as 0 and is counted apart.
1.0 is fully correct.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

Value = float | Mapping[str, float] | None
Reward = Callable[..., Value]

OPTIONS = frozenset({"backend", "url", "seconds", "memory_mb", "partial"})
"""Options that only settings give. A column of that name is not handed over: data must not choose a sandbox."""

REWARDS: dict[str, str | Reward] = {
    "boxed": "dare.rewards.maths:boxed",
    "digit_sums": "dare.rewards.arithmetic:digit_sums",
    "hashes": "dare.rewards.maths:hashes",
    "countdown": "dare.rewards.arithmetic:countdown",
    "countdown_plain": "dare.rewards.arithmetic:countdown_plain",
    "sudoku": "dare.rewards.sudoku:sudoku",
    "sudoku_plain": "dare.rewards.sudoku:sudoku_plain",
    "sudoku9": "dare.rewards.sudoku:sudoku9",
    "gsm8k": "dare.rewards.gsm8k:gsm8k",
    "gsm8k_flexible": "dare.rewards.gsm8k:gsm8k_flexible",
    "math": "dare.rewards.symbolic:math",
    "reasoning_gym": "dare.rewards.gym:reasoning_gym",
    "humaneval": "dare.rewards.code:humaneval",
    "mbpp": "dare.rewards.code:mbpp",
    "unit_tests": "dare.rewards.code:unit_tests",
    "release_math": "dare.rewards.release:release_math",
    "release_countdown": "dare.rewards.release:release_countdown",
    "d1_gsm8k": "dare.rewards.d1:d1_gsm8k",
    "d1_math": "dare.rewards.d1:d1_math",
    "ifeval": "dare.rewards.ifeval:ifeval",
    "ifeval_share": "dare.rewards.ifeval:ifeval_share",
    "ifeval_loose": "dare.rewards.ifeval:ifeval_loose",
    "multiple_choice": "dare.rewards.choice:multiple_choice",
    "exact": "dare.rewards.text:exact",
    "contains": "dare.rewards.text:contains",
    "matches": "dare.rewards.text:matches",
    "format": "dare.rewards.shape:format",
    "tag_count": "dare.rewards.shape:tag_count",
    "length": "dare.rewards.shape:length",
    "overlong": "dare.rewards.shape:overlong",
    "repetition": "dare.rewards.shape:repetition",
    "json_schema": "dare.rewards.json_schema:json_schema",
}
"""Name -> the function, or ``module:function``, whose module is imported when the reward is asked for."""

LEARNED = MappingProxyType(
    {
        "reward_model": "dare.learned.scalar:reward_model",
        "preference_model": "dare.learned.pairwise:preference_model",
        "process_reward": "dare.learned.process:process_reward",
        "prefix_reward": "dare.learned.process:prefix_reward",
        "pass_reward": "dare.learned.process:pass_reward",
        "judge": "dare.learned.judge:judge",
    }
)
"""Name -> the function that makes a reward out of its options. It grades all completions in one call."""

APART = MappingProxyType(
    dict.fromkeys(
        ("math", "reasoning_gym", "release_math", "matches", "json_schema", "ifeval", "ifeval_share", "ifeval_loose"),
        30.0,
    )
    | dict.fromkeys(("humaneval", "mbpp", "unit_tests"), 120.0)
)
"""Rewards that some texts make slow: they run in a process that is stopped after so many seconds."""

FORMS = frozenset({"format", "tag_count", "length", "overlong", "repetition"})
"""Rewards for the form of a completion, which say nothing about its being right."""

DEFAULT_REWARD = MappingProxyType(
    {
        "gsm8k": "boxed",
        "openai/gsm8k": "hashes",
        "math": "boxed",
        "math500": "boxed",
        "aime2024": "boxed",
        "aime2025": "boxed",
        "countdown": "countdown",
        "countdown_small": "countdown_plain",
        "digit_sums": "digit_sums",
        "sudoku": "sudoku",
        "sudoku_small": "sudoku_plain",
        "reasoning_gym": "reasoning_gym",
        "humaneval": "humaneval",
        "humanevalplus": "humaneval",
        "openai_humaneval": "humaneval",
        "mbpp": "mbpp",
        "kodcode": "mbpp",
        **dict.fromkeys(("apps", "taco", "lcbv5", "code_contests", "codeforces", "primeintellect"), "unit_tests"),
    }
)
"""The reward of each ``data_source``; a source not named here needs its reward spelled out."""
