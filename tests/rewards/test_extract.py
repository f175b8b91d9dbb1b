import pytest

from dare.rewards.extract import after_hashes, last_boxed, last_tag


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> 1+2 </answer>", "1+2"),
        ("<answer>a</answer> then <answer>b</answer>", "b"),
        ("<answer>a</answer> then <answer>b", "a"),
        ("<answer>x<answer>y</answer>", "y"),
        ("</answer> 3", None),
        ("<answer> 3", None),
        ("", None),
    ],
)
def test_last_tag(text: str, expected: str | None) -> None:
    assert last_tag(text, "answer") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{1} so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{x=\boxed{5}}", "5"),
        (r"\boxed {\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 3 \right.}", r"\left\{ 3 \right."),
        (r"\boxed{1} \boxed{2", None),
        ("boxed{3}", None),
    ],
)
def test_last_boxed(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\n#### 1\n#### 9,492\nmore", "9,492"), ("####5", "5"), ("#### \n", None), ("### 5", None)],
)
def test_after_hashes(text: str, expected: str | None) -> None:
    assert after_hashes(text) == expected


@pytest.mark.parametrize("piece", ["<answer>", r"\boxed{", "{", "</answer>", "####"])
def test_long_hostile_text_is_read_in_linear_time(piece: str) -> None:
    text = r"\boxed{" + piece * 50_000
    assert last_tag(text, "answer") is None
    assert last_boxed(text) is None
    after_hashes(text)
