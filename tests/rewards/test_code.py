import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bubblewrap import needs_bwrap
from dare.errors import DareError
from dare.rewards.code import humaneval, mbpp, unit_tests
from dare.rewards.code_cases import matches, unit_test_cases
from dare.rewards.code_extract import MAX_CODE, main_function, program_of, prompt_code
from dare.sandbox import base, bwrap

pytestmark = needs_bwrap
HUMANEVAL = {  # well-known tasks by number, solved by hand
    0: """
def has_close_elements(numbers, threshold):
    ordered = sorted(numbers)
    return any(b - a < threshold for a, b in zip(ordered, ordered[1:]))
""",
    1: """
def closes(depth, char):
    return depth + (1 if char == '(' else -1)

def separate_paren_groups(paren_string):
    groups, group, depth = [], '', 0
    for char in paren_string.replace(' ', ''):
        group, depth = group + char, closes(depth, char)
        if depth == 0:
            groups.append(group)
            group = ''
    return groups
""",
    2: "def truncate_number(number):\n    return number % 1.0",
    10: """
def make_palindrome(string):
    for i in range(len(string) + 1):
        if is_palindrome(string + string[:i][::-1]):
            return string + string[:i][::-1]
""",
    32: """
def find_zero(xs):
    low, high = -1.0, 1.0
    while poly(xs, low) * poly(xs, high) > 0:
        low, high = 2 * low, 2 * high
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if poly(xs, middle) * poly(xs, low) > 0 else (low, middle)
    return low
""",
    33: "def sort_third(l):\n    l = list(l)\n    l[::3] = sorted(l[::3])\n    return l",
    38: """
def decode_cyclic(s):
    groups = [s[i:i + 3] for i in range(0, len(s), 3)]
    return ''.join(g[-1] + g[:-1] if len(g) == 3 else g for g in groups)
""",
    50: "def decode_shift(s):\n    return ''.join(chr((ord(c) - 5 - 97) % 26 + 97) for c in s)",
}
MBPP = {
    0: """
def remove_Occ(s, c):
    i = s.find(c)
    s = s[:i] + s[i + 1:]
    j = s.rfind(c)
    return s[:j] + s[j + 1:]
""",
    1: "def sort_matrix(M):\n    return sorted(M, key=sum)",
    2: """
from collections import Counter
def count_common(words):
    return Counter(words).most_common(4)
""",
    3: "def find_Volume(l, b, h):\n    return l * b * h // 2",
    115: "def sum(a, b):\n    return __builtins__['sum'](i for i in range(1, a + 1) if a % i == 0 and b % i == 0)",
}


def rows(shared: Path, name: str) -> list[dict]:
    return pq.read_table(shared / f"data/rl/test/{name}.parquet").to_pylist()


@pytest.mark.parametrize("number", HUMANEVAL)
def test_humaneval_of_the_release(number: int, shared: Path) -> None:
    row = rows(shared, "humaneval")[number]
    columns = {"ground_truth": row["reward_model"]["ground_truth"], "prompt": row["prompt"]}
    answer = HUMANEVAL[number].strip()
    assert humaneval(f"```python\n{answer}\n```", **columns) == 1.0
    assert humaneval(answer, **columns) == 1.0
    assert humaneval(answer.replace("return", "return None #"), **columns) == 0.0


@pytest.mark.parametrize("number", MBPP)
def test_mbpp_of_the_release(number: int, shared: Path) -> None:
    row = next(row for row in rows(shared, "mbpp") if row["extra_info"]["index"] == number)
    columns = {"ground_truth": row["reward_model"]["ground_truth"]}
    assert mbpp(f"{MBPP[number].strip()}\n[DONE]", **columns) == 1.0
    assert mbpp(MBPP[number].replace("return", "return None #"), **columns) == 0.0


def test_partial_is_the_share_of_tests_passed() -> None:
    tests = ["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9", "assert f(4) == 4"]
    assert mbpp("def f(x):\n    return x * x", ground_truth=tests, partial=True) == 0.75
    assert mbpp("def f(x):\n    return x * x", ground_truth=tests) == 0.0
    dies = "import os\ndef f(x):\n    return x * x if x < 3 else os._exit(0)"
    assert mbpp(dies, ground_truth=tests, partial=True) == 0.5
    table = {"inputs": ["1", "2"], "outputs": ["1", "4"]}
    assert unit_tests("n = int(input())\nprint(n * n if n > 1 else 0)", ground_truth=table, partial=True) == 0.5
    assert unit_tests("n = int(input())\nprint(n * n if n > 1 else 0)", ground_truth=table) == 0.0


def test_limits_are_options() -> None:
    slow = "import time\ntime.sleep(0.5)\ndef f(x):\n    return x"
    assert mbpp(slow, ground_truth=["assert f(1) == 1"], seconds=0.2) == 0.0
    large = "held = bytearray(200 << 20)\ndef f(x):\n    return x"
    assert mbpp(large, ground_truth=["assert f(1) == 1"], memory_mb=128) == 0.0
    assert mbpp(large, ground_truth=["assert f(1) == 1"], memory_mb=512) == 1.0


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ("assert f(1) == 1", "ground_truth is no JSON"),
        ("[]", "a list of assertions is expected"),
        ('["assert f("]', "no Python"),
        ('[["a"]]', "a list of assertions is expected"),
        ('{"inputs": ["1"], "outputs": []}', "as many"),
        ('{"inputs": [[1]], "outputs": [1], "fn_name": "f()"}', "name of a function"),
    ],
)
def test_a_broken_row_is_named(truth: str, message: str) -> None:
    with pytest.raises(DareError, match=message):
        unit_tests("print(1)", ground_truth=truth)
    if "fn_name" not in truth and "inputs" not in truth:
        with pytest.raises(DareError, match=message):
            mbpp("def f(x):\n    return x", ground_truth=truth)


def test_broken_options_are_named() -> None:
    with pytest.raises(DareError, match="memory_mb is 16; Python needs at least 128"):
        mbpp("def f(x):\n    return x", ground_truth=["assert f(1)"], memory_mb=16)
    with pytest.raises(DareError, match="ground_truth has a test that is no Python"):
        humaneval("def f(x):\n    return x", ground_truth="def check(candidate)")


@pytest.fixture
def _no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bwrap.shutil, "which", lambda _: None)
    base.open_sandbox.cache_clear()
    yield
    base.open_sandbox.cache_clear()


@pytest.mark.usefixtures("_no_bubblewrap")
def test_without_the_sandbox_nothing_is_run_and_nothing_is_zero() -> None:
    with pytest.raises(DareError, match="apt install bubblewrap"):
        mbpp("def f(x):\n    return x", ground_truth=["assert f(1)"])


def test_raw_code_goes_on_after_a_text_that_reads_like_prose() -> None:
    code = 'NOTE = """\nAdd more test cases.\n"""\n\ndef f(x):\n    return x\n'
    assert program_of(f"{code}This is the answer.", "f") == code
    assert program_of(f"{code}\nNOTE = '''\nHere it is.\n", "f") == f"{code}\nNOTE = '''\nHere it is.\n"


def test_a_setup_may_build_objects_of_the_program() -> None:
    program = """
class Node:
    def __init__(self, data): self.data, self.left, self.right = data, None, None
def height(node): return 1 + max(height(node.left), height(node.right)) if node else 0
"""
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.left = Node(3)"
    assert mbpp(program, ground_truth=["assert height(root) == 3"], test_setup_code=setup) == 1.0
    assert mbpp(program, ground_truth=["assert height(root) == 2"], test_setup_code=setup) == 0.0


def test_main_function() -> None:
    assert main_function("def a():\n    pass\ndef b():\n    a()") == "b"
    assert main_function("def b():\n    return a()\ndef a():\n    pass\nprint(b())") == "b"
    assert main_function("def a():\n    a()") == "a"
    assert main_function("def a():\n    b()\ndef b():\n    a()") == "b"
    assert main_function("class A:\n    def f(self): pass") is None


def test_prompt_code() -> None:
    code = "import math\n\ndef f(x):\n    pass\n"
    assert prompt_code(f"Complete the following python code:\n{code}") == code
    assert prompt_code(f"Complete:\n```python\n{code}```\nThank you.") == code.strip()
    turns = [{"role": "user", "content": code}, {"role": "assistant", "content": "def g(): pass"}]
    assert prompt_code(turns) == code
    assert prompt_code("Write a function.") == ""


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "```",
            "```\n",
            "```python\n",
            "[BEGIN]",
            "[DONE]",
            "</think>",
            "def f",
            "def f():\n",
            "    ",
            "\n",
            "x, ",
            "if :",
        ),
        *(
            "'''\nAdd a\n",
            "A",
            "A ",
            "A b",
            "for : ",
            "x = ",
            "'",
            "\0",
            "\ud800",
            "\u2028",
            "🙂",
            "class",
            "@",
            "a" * 50 + "=",
        ),
    ],
)
def test_long_text_is_read_in_linear_time(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    for found in (program_of(text, "f", True), program_of(f"def f(x):\n    return x\n{text}", "f")):
        assert found is None or len(found) <= MAX_CODE
    main_function(text)
    prompt_code(text)
    assert matches(text[:100_000], text[:100_000])


def test_unit_test_cases() -> None:
    assert len(unit_test_cases({"inputs": [["1", "2"]], "outputs": [["3"]]})) == 1
    cases = unit_test_cases(json.loads('{"inputs": [["1", "2"]], "outputs": [3]}'))
    assert vars(cases) == {"inputs": ["1\n2"], "outputs": ["3"]}
    assert not matches("1", "1.0e400") and matches("1\n\n", "1")
