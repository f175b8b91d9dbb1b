from dare.rewards.d1 import d1_gsm8k, d1_math

FORMATTED = "<reasoning>\n9 + 9\n</reasoning>\n<answer>\n18\n</answer>\n"


def test_full_marks_are_four_points() -> None:
    assert sum(d1_gsm8k(FORMATTED, ground_truth="18", index=0).values()) == 4.0


def test_text_behind_the_answer_costs_twice_a_thousandth_per_character() -> None:
    longer = d1_gsm8k(FORMATTED + "a" * 10, ground_truth="18")
    assert longer["xml_count"] == 0.5 - 2 * 0.010
    assert longer["strict_format"] == 0.0 and longer["soft_format"] == 0.5


def test_math_scores_the_format_apart_from_the_answer() -> None:
    tagged = d1_math(r"<answer>\boxed{18}</answer>", ground_truth="18", index=0)
    assert tagged == {"correct": 2.0, "format": 1.0}
    assert d1_math("it is 18", ground_truth="18") == {"correct": 0.0, "format": 0.25}
