from itertools import permutations, product

import pytest

from dare.data.countdown import countdown_small, solutions
from dare.data.digit_sums import digit_sums
from dare.data.sudoku import all_grids, sudoku_small
from dare.data.tasks import TASKS
from dare.errors import DareError
from dare.rewards.arithmetic import evaluate
from dare.rewards.registry import DEFAULT_REWARD
from dare.rewards.sudoku import is_solution
from dare.types import Example
from graders import reward


def problem(example: Example) -> str:
    """What must not be shared by train and test."""
    columns = example.columns
    if "puzzle" in columns:
        return columns["puzzle"]
    if columns["data_source"] == "digit_sums":
        return columns["ground_truth"]
    return f"{sorted(columns['numbers'])}={columns['ground_truth']}"


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_answer_gets_full_marks(name: str, split: str) -> None:
    grade = reward(DEFAULT_REWARD[name])
    examples = TASKS[name](150, 0, split)
    assert [grade(e.answer, **e.columns) for e in examples] == [1.0] * 150
    assert [e.columns["index"] for e in examples] == list(range(150))


@pytest.mark.parametrize("name", TASKS)
def test_deterministic_in_seed_split_and_index(name: str) -> None:
    short, long = TASKS[name](20, 3, "train"), TASKS[name](50, 3, "train")
    assert long[:20] == short
    assert TASKS[name](20, 4, "train") != short


@pytest.mark.parametrize("name", TASKS)
def test_train_and_test_share_no_problem(name: str) -> None:
    train = {problem(e) for e in TASKS[name](6000, 0, "train")}
    test = {problem(e) for seed in range(3) for e in TASKS[name](150, seed, "test")}
    assert train and test and not train & test


@pytest.mark.parametrize("name", TASKS)
def test_test_problems_are_distinct_and_finite(name: str) -> None:
    drawn = TASKS[name](180, 0, "test")
    assert len({(problem(e), e.columns.get("puzzle")) for e in drawn}) == 180
    with pytest.raises(DareError, match="ask for at most"):
        TASKS[name](10**7, 0, "test")


def test_all_held_out_countdown_problems_can_be_drawn() -> None:
    with pytest.raises(DareError) as refusal:
        countdown_small(10**6, 0, "test")
    total = int(str(refusal.value).rsplit(maxsplit=1)[1])
    assert len({problem(e) for e in countdown_small(total, 0, "test")}) == total


@pytest.mark.parametrize(
    ("arguments", "named"), [((1, 0, "tset"), "tset.*did you mean 'test'"), ((0, 0, "train"), "count is 0")]
)
@pytest.mark.parametrize("name", TASKS)
def test_bad_requests_are_named(name: str, arguments: tuple[int, int, str], named: str) -> None:
    with pytest.raises(DareError, match=named):
        TASKS[name](*arguments)


def brute_force(numbers: tuple[int, ...], target: int) -> set[str]:
    """Every spelling with and without each pair of parentheses, shortened to those that need what they carry."""
    texts = {
        shape.format(*order, *operators)
        for order in permutations(numbers)
        for operators in product("+-*", repeat=2)
        for shape in ("{0}{3}{1}{4}{2}", "({0}{3}{1}){4}{2}", "{0}{3}({1}{4}{2})")
    }
    reached = {text for text in texts if evaluate(text)[0] == target}
    return {text for text in reached if not needless(text)}


def needless(text: str) -> bool:
    """Parentheses may go when the bare text groups the same way or by associativity has the same value everywhere."""
    if "(" not in text:
        return False
    inside = text[text.index("(") + 1 : text.index(")")]
    before, after = text[: text.index("(")][-1:], text[text.index(")") + 1 :][:1]
    if "*" in inside:
        return True
    return not ("*" in (before, after) or before == "-")


@pytest.mark.parametrize(("numbers", "target"), [((2, 3, 7), 23), ((1, 2, 3), 6), ((4, 4, 4), 4), ((1, 5, 9), 5)])
def test_solutions_are_complete(numbers: tuple[int, ...], target: int) -> None:
    assert set(solutions(numbers, target)) == brute_force(numbers, target)


def test_answers_are_drawn_from_all_solutions() -> None:
    answers: dict[str, set[str]] = {}
    for example in countdown_small(20_000, 0, "train"):
        answers.setdefault(problem(example), set()).add(example.answer or "")
    assert sum(len(texts) > 1 for texts in answers.values()) > len(answers) / 2


@pytest.mark.parametrize("numbers", [2, 4])
def test_other_sizes(numbers: int) -> None:
    for example in countdown_small(20, 0, "train", numbers=numbers):
        assert reward("countdown_plain")(example.answer, **example.columns) == 1.0


def test_countdown_prompt() -> None:
    example = countdown_small(1, 0, "train")[0]
    numbers = example.columns["numbers"].strip("[]").replace(",", "")
    assert example.prompt == ({"role": "user", "content": f"{numbers}={example.columns['ground_truth']}"},)
    with pytest.raises(DareError, match="numbers is 7"):
        countdown_small(1, 0, "train", numbers=7)


def completions(puzzle: str) -> int:
    """Count the solutions by trying every digit in every empty cell."""
    if "0" not in puzzle:
        return is_solution(puzzle)
    cell = puzzle.index("0")
    row, column = divmod(cell, 4)
    corner = 8 * (row // 2) + 2 * (column // 2)
    box = "".join(puzzle[corner + offset] for offset in (0, 1, 4, 5))
    seen = puzzle[4 * row : 4 * row + 4] + puzzle[column::4] + box
    return sum(completions(puzzle[:cell] + d + puzzle[cell + 1 :]) for d in "1234" if d not in seen)


def test_sudoku_puzzles_can_be_solved_by_their_answer() -> None:
    assert len(set(all_grids())) == 288
    for example in sudoku_small(300, 1, "train"):
        puzzle = example.prompt[0]["content"]
        assert puzzle == example.columns["puzzle"]
        assert 5 <= puzzle.count("0") <= 9
        assert completions(puzzle) >= 1


def test_digit_sums_are_drawn_from_all_pairs() -> None:
    firsts = {
        example.answer[0]
        for example in digit_sums(4000, 0, "train")
        if example.columns["ground_truth"].startswith("10 ")
    }
    assert firsts == set("123456789")
