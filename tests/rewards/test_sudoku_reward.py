import pytest

from dare.errors import DareError
from dare.rewards.sudoku import is_solution, sudoku, sudoku9, sudoku_plain

SOLUTION = "4321123434122143"
PUZZLE = "0321003004002100"
FIRST, SECOND = "1234341221434321", "2134341212434321"


def test_is_solution() -> None:
    assert is_solution(SOLUTION)
    assert not is_solution("1234123412341234")
    assert not is_solution("1234234134124123")  # rows and columns hold, boxes do not
    assert not is_solution(SOLUTION[:15])


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (f"<answer>\n{SOLUTION}\n</answer>", 1.0),
        ("<answer>4321 1234 | 3412 2143</answer>", 1.0),
        (f"<answer>{SOLUTION}99</answer>", 1.0),
        ("<answer>4" + "1" * 15 + "</answer>", 3 / 9),
        ("<answer>43211</answer>", 2 / 9),
        ("<answer>none</answer>", 0.0),
        ("<answer>" + "４" * 16 + "</answer>", 0.0),
        (SOLUTION, None),
    ],
)
def test_sudoku(completion: str, score: float | None) -> None:
    assert sudoku(completion, ground_truth=SOLUTION, puzzle=PUZZLE, index=0) == score


def test_sudoku_without_empty_cells_scores_zero() -> None:
    assert sudoku(f"<answer>{SOLUTION}</answer>", ground_truth=SOLUTION, puzzle=SOLUTION) == 0.0


@pytest.mark.parametrize(
    "completion",
    ["", SOLUTION[:15], SOLUTION + "1", "0" * 16, "5" * 16, "４" * 16, f"is {SOLUTION}", "4321 123434122143"],
)
def test_sudoku_plain_reads_sixteen_digits_only(completion: str) -> None:
    assert sudoku_plain(completion, ground_truth=SOLUTION, puzzle=PUZZLE) is None


def test_sudoku_plain_scores() -> None:
    assert sudoku_plain(f" {SOLUTION}\n", ground_truth=SOLUTION, puzzle=PUZZLE) == 1.0
    one_wrong = "1" + SOLUTION[1:]
    assert sudoku_plain(one_wrong, ground_truth=SOLUTION, puzzle=PUZZLE) == pytest.approx(0.9 * 9 / 12)
    changed_given = SOLUTION[0] + "4" + SOLUTION[2:]
    assert sudoku_plain(changed_given, ground_truth=SOLUTION, puzzle=PUZZLE) == 0.0


def test_sudoku_plain_accepts_every_valid_completion() -> None:
    puzzle = "".join(a if a == b else "0" for a, b in zip(FIRST, SECOND, strict=True))
    assert is_solution(FIRST) and is_solution(SECOND) and "0" in puzzle
    assert sudoku_plain(SECOND, ground_truth=FIRST, puzzle=puzzle) == 1.0
    assert sudoku(f"<answer>{SECOND}</answer>", ground_truth=FIRST, puzzle=puzzle) == 0.0


def test_a_broken_row_is_named() -> None:
    with pytest.raises(DareError, match="puzzle is '123'"):
        sudoku_plain(SOLUTION, ground_truth=SOLUTION, puzzle="123")


NINE = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def test_sudoku9_reads_a_drawn_grid() -> None:
    rows = [NINE[cell : cell + 9] for cell in range(0, 81, 9)]
    drawn = "\n---+---+---\n".join("\n".join(rows[band : band + 3]) for band in (0, 3, 6))
    assert is_solution(NINE)
    assert sudoku9(f"Done: <answer>{drawn}</answer>", puzzle="." * 81, index=0) == 1.0
    assert sudoku9(drawn, puzzle="0" * 81) == 1.0


def test_sudoku9_scores_like_the_small_one() -> None:
    wrong = NINE[:80] + "1"
    assert sudoku9(wrong, puzzle="0" * 81) == pytest.approx(0.9 * 24 / 27)
    assert sudoku9(wrong, puzzle="0" * 80 + "9") == 0.0
    with pytest.raises(DareError, match="a 9x9 sudoku needs 81 digits"):
        sudoku9(NINE, puzzle=PUZZLE)
