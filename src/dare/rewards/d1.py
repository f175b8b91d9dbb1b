r"""The rewards of d1 (Zhao et al., 2025, arXiv 2504.12216; code released as diffu-GRPO) for GSM8K and MATH.

The rules are those of the released code, but for one slip in it: where ``d1_math`` looks for ``\boxed``, the code
writes a backspace and "oxed", so that of the paper's four tiers it only ever gives 0.75 and 0.25. Here all four are.
"""

import re
from typing import Any

from dare.rewards.extract import last_boxed
from dare.rewards.release import hendrycks

_BETWEEN = re.compile(r"</reasoning>\s*<answer>")


def d1_gsm8k(completion: str, *, ground_truth: str, **_: Any) -> dict[str, float]:
    """Return the parts ``correct`` (2.0), ``integer``, ``strict_format``, ``soft_format`` (0.5 each), ``xml_count``.

    The answer is what follows the last ``<answer>``, up to ``</answer>``; without tags the whole text. It is correct
    if it is the truth's text, character by character. The sum is about 4 at most; long trailing text makes it negative.
    """
    answer = completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    return {
        "correct": 2.0 * (answer == ground_truth.strip()),
        "integer": 0.5 * answer.isdigit(),
        "strict_format": 0.5 * _strict(completion),
        "soft_format": 0.5 * _soft(completion),
        "xml_count": _xml_count(completion),
    }


def d1_math(completion: str, *, ground_truth: str, **_: Any) -> dict[str, float]:
    r"""Return the parts ``correct``: 2.0 if the last box equals the truth after ``hendrycks``, and ``format``.

    Without a box the whole text is compared. ``format``: 1.0 for ``\boxed`` behind ``<answer>``, closed or not, 0.75
    for that tag alone, 0.5 for ``\boxed`` alone, else 0.25.
    """
    answer, truth = last_boxed(completion) or completion, last_boxed(ground_truth) or ground_truth
    return {"correct": 2.0 * (hendrycks(answer) == hendrycks(truth)), "format": _tier(completion)}


def _tier(text: str) -> float:
    _, opened, rest = text.partition("<answer>")
    inside = rest.partition("<answer>")[0].partition("</answer>")[0] if opened else text
    return 0.5 * bool(opened) + (0.5 if r"\boxed" in inside else 0.25)


def _strict(text: str) -> bool:
    opening, middle, closing = "<reasoning>\n", "\n</reasoning>\n<answer>\n", ("\n</answer>\n", "\n</answer>\n\n")
    split = text.find(middle, len(opening))
    return text.startswith(opening) and split >= 0 and text.endswith(closing, split + len(middle))


def _soft(text: str) -> bool:
    between = _BETWEEN.search(text)
    return text.startswith("<reasoning>") and between is not None and text.find("</answer>", between.end()) >= 0


def _xml_count(text: str) -> float:
    """Return 0.125 per tag on its line, less 0.001 per character behind ``</answer>``, counted with both answer tags.

    As in the older rewards: a closing tag without a line break after it makes the whole text count as trailing, and a
    text that ends in ``</answer>`` gains 0.001.
    """
    count = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
    if text.count("\n<answer>\n") == 1:
        count += 0.125 - 0.001 * len(text.rpartition("\n</answer>\n")[2])
    if text.count("\n</answer>") == 1:
        count += 0.125 - 0.001 * (len(text.rpartition("\n</answer>")[2]) - 1)
    return count
