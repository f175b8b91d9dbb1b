"""Real runs that go wrong in every way an alarm knows, the rule that stops them, and what is not finite."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dare.cli import main
from dare.config import load_config
from dare.engines.local import LocalEngine
from dare.errors import DareError
from dare.evaluation.config import EvalConfig
from dare.evaluation.evaluate import evaluate
from dare.evaluation.report import alarms, read_run, write_report
from dare.rewards import registry
from dare.train.config import GuardConfig, RLConfig
from dare.train.folder import checkpoints
from dare.train.rl import train_rl
from dare.train.run import load_model
from dare.train.watch import SIGNS, Alarms

RUN = [
    "task={train: sudoku_small, train_count: 40}",
    "decoding={max_new_tokens: 8, block_size: 8, steps: 4, temperature: 1.0}",
    "algorithm={name: coupled_grpo, group_size: 4, updates: 1, kl_coef: 0}",
    "train={batch: 4, steps: 6}",
    "optim.lr=1.0e-4",
    "guard={steps: 3}",
]
WRONG_SIGN = ["task.rewards={quiet: -1.0}", "optim.lr=3.0e-3", "train.steps=40"]
GUARDED = ["guard={eval_every: 2, eval_count: 24, patience: 2, steps: 3}"]
REWARDS = {
    "constant": lambda completion, **_: 0.1,
    "ones": lambda completion, **_: completion.count("1") / 8,
    "short": lambda completion, **_: 0.9 - len(completion) / 10,
    "quiet": lambda completion, **_: 1.0 - completion.count("1") / 8,
    "broken": lambda completion, **_: float("nan"),
}


@pytest.fixture(autouse=True)
def _rigged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reward in REWARDS.items():
        monkeypatch.setitem(registry.REWARDS, name, reward)


def settings(folder: Path, *more: str) -> RLConfig:
    return load_config(RLConfig, [*RUN, f"output={folder}", *more])


def logged(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def raised(folder: Path, name: str) -> list[int]:
    return [line["step"] for line in logged(folder) if line.get(f"alarm/{name}")]


def test_a_constant_reward_raises_the_format_floor_and_zero_variance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train_rl(settings(tmp_path / "run", "task.rewards={constant: 1.0}"))
    assert raised(folder, "format_floor") == raised(folder, "zero_variance") == [3, 4, 5, 6]
    assert raised(folder, "entropy_collapse") == raised(folder, "not_finite") == []
    lines = [line for line in capsys.readouterr().err.splitlines() if "alarm at step" in line]
    assert [line.split(":")[:2] for line in lines] == [
        ["alarm at step 3", " format_floor"],
        ["alarm at step 3", " zero_variance"],
    ]


def test_a_reward_that_differs_raises_nothing(tmp_path: Path) -> None:
    folder = train_rl(settings(tmp_path / "run", "task.rewards={ones: 1.0}", "decoding.temperature=1.5"))
    for name in SIGNS:
        assert name == "zero_variance" or raised(folder, name) == []


def test_a_huge_step_size_raises_entropy_collapse(tmp_path: Path) -> None:
    folder = train_rl(settings(tmp_path / "run", "task.rewards={ones: 1.0}", "optim.lr=0.03", "train.steps=15"))
    assert raised(folder, "entropy_collapse")


def test_a_reward_for_brevity_raises_length_collapse(tmp_path: Path) -> None:
    more = ["task.rewards={short: 1.0}", "optim.lr=1.0e-2", "train.steps=12", "guard.length_share=0.5"]
    assert raised(train_rl(settings(tmp_path / "run", *more)), "length_collapse")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that learns the reverse of its task, and what it said when it stopped."""
    folder = tmp_path_factory.mktemp("guard") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.REWARDS, "quiet", REWARDS["quiet"])
        with pytest.raises(DareError) as caught:
            train_rl(settings(folder, *WRONG_SIGN, *GUARDED))
    return folder, str(caught.value)


def test_a_run_below_its_untrained_model_stops_and_is_saved(stopped: tuple[Path, str]) -> None:
    folder, message = stopped
    lines = logged(folder)
    baseline, *evaluations = [line for line in lines if "eval/accuracy" in line]
    assert baseline["step"] == 0 and baseline["eval/accuracy"] == baseline["eval/baseline"] > 0.5
    below = [line["eval/high"] < baseline["eval/accuracy"] for line in evaluations]
    assert below[-2:] == [True, True] and [True, True] not in [below[i : i + 2] for i in range(len(below) - 2)]
    last = lines[-1]["step"]
    assert last < 40 and checkpoints(folder)[-1].name == f"step_{last:06d}"
    assert message.startswith(f"stopped at step {last}:") and "guard.patience=2" in message
    assert raised(folder, "below_baseline")[-2:] == [last - 2, last]
    assert load_model(str(folder)).tokenizer is not None


def test_the_report_lists_alarms_with_their_first_steps(stopped: tuple[Path, str]) -> None:
    folder, _ = stopped
    html = write_report(folder, "stopped").read_text()
    first = raised(folder, "below_baseline")[0]
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", html.split("<h2>Alarms</h2>")[1].split("</section>")[0])).split())
    assert f"below_baseline {first} " in text and SIGNS["below_baseline"].meaning in text
    assert [alarm.first for alarm in alarms(read_run(folder).metrics) if alarm.name == "below_baseline"] == [first]
    assert "Held-out accuracy" in html and "untrained" in html


def test_a_resumed_run_knows_what_it_had_seen(
    stopped: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next evaluation below the baseline stops it, with a line and a status: the count is read back."""
    folder, _ = stopped
    last = logged(folder)[-1]["step"]
    layers = [*RUN, f"output={folder}", *WRONG_SIGN, *GUARDED, "resume=true"]
    monkeypatch.setattr("sys.argv", ["dare", "rl", *layers])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert f"error: stopped at step {last + 2}:" in printed and "for 3 evaluations in a row" in printed
    assert "alarm at step" not in printed and "Traceback" not in printed


def test_a_report_is_written_on_request(
    stopped: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["dare", "report", str(stopped[0])])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code and "report.html" in capsys.readouterr().err
    assert "below_baseline" in (stopped[0] / "report.html").read_text()


def test_a_run_in_halves_is_the_whole_run_and_watching_changes_no_weight(tmp_path: Path) -> None:
    def run(name: str, *more: str) -> Path:
        short = ["task.rewards={constant: 1.0}", "train.steps=4", "train.batch=2"]
        return train_rl(settings(tmp_path / name, *short, *more, "guard.eval_count=6"))

    whole, plain = run("whole", *GUARDED), run("plain")
    run("halves", *GUARDED, "train.save_every=2")
    checkpoints(tmp_path / "halves")[-1].rename(tmp_path / "gone")
    halves = run("halves", *GUARDED, "resume=true")
    clocks = ("time", "tokens_per_s", "memory_gb")
    kept = [
        [{k: v for k, v in line.items() if not k.startswith(clocks)} for line in logged(one)] for one in (whole, halves)
    ]
    assert kept[0] == kept[1]
    for other in (halves, plain):
        for name, weight in load_model(str(whole)).model.state_dict().items():
            assert torch.equal(weight, load_model(str(other)).model.state_dict()[name])


def test_a_run_without_a_baseline_cannot_be_resumed_with_evaluations(tmp_path: Path) -> None:
    train_rl(settings(tmp_path / "run", "task.rewards={ones: 1.0}", "train.steps=1"))
    with pytest.raises(DareError, match="began without an evaluation of the untrained model"):
        train_rl(settings(tmp_path / "run", "task.rewards={ones: 1.0}", *GUARDED, "resume=true"))


def test_rows_that_are_trained_on_do_not_guard(tmp_path: Path) -> None:
    with pytest.raises(DareError, match=r"set task\.test"):
        settings(tmp_path, "task.train=rows.jsonl", *GUARDED)


def test_a_reward_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(DareError, match=r"reward 'broken' failed on row .*it gave nan"):
        train_rl(settings(tmp_path / "run", "task.rewards={broken: 1.0}"))
    assert not (tmp_path / "run").exists()


def test_broken_weights_end_the_run_before_any_text_comes_of_them(tmp_path: Path) -> None:
    folder = train_rl(settings(tmp_path / "run", "task.rewards={ones: 1.0}", "train.steps=1"))
    file = checkpoints(folder)[-1] / "model.safetensors"
    tensors = load_file(file)
    next(iter(tensors.values())).fill_(torch.nan)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DareError, match="NaN or infinite logits while decoding"):
        train_rl(settings(tmp_path / "next", "task.rewards={ones: 1.0}", f"model.path={folder}"))
    assert not (tmp_path / "next" / "rollouts.jsonl").exists()


def test_scores_that_are_not_finite_skip_the_update_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = LocalEngine.score

    def broken(self, seqs, views, *, reference=False):
        scores = score(self, seqs, views, reference=reference)
        if reference:
            scores.logp_BKT[0] = torch.nan
        return scores

    monkeypatch.setattr(LocalEngine, "score", broken)
    more = ["task.rewards={ones: 1.0}", "algorithm.kl_coef=0.1", "optim.max_skipped=3"]
    with pytest.raises(DareError, match="3 updates in a row"):
        train_rl(settings(tmp_path / "run", *more))
    first, second = logged(tmp_path / "run")
    assert first["skipped_updates"] == second["skipped_updates"] == 1.0
    assert first["rows/not_finite"] == pytest.approx(1 / 32)  # one of sixteen rows, looked at twice
    assert raised(tmp_path / "run", "not_finite") == [1, 2]


def test_one_answer_per_prompt_has_no_variance_to_lose() -> None:
    watch = Alarms(GuardConfig(steps=1), group_size=1)
    values, new = watch({"groups/zero_variance": 1.0, "length/mean": 8.0, "entropy": 2.0})
    assert "alarm/zero_variance" not in values and not new


def test_an_alarm_needs_its_steps_in_a_row() -> None:
    watch = Alarms(GuardConfig(steps=2), group_size=4)
    shown = [1.0, 0.0, 1.0, None, 1.0, 1.0, 0.0, 1.0, 1.0]
    steps = [watch({"groups/zero_variance": value, "length/mean": 8.0, "entropy": 2.0}) for value in shown]
    assert [values["alarm/zero_variance"] for values, _ in steps] == [0, 0, 0, 0, 0, 1, 0, 0, 1]
    assert [new for _, new in steps if new] == [["zero_variance"]]


def test_the_baseline_is_what_dare_eval_measures(stopped: tuple[Path, str]) -> None:
    folder, _ = stopped
    layers = [*RUN[:2], "task.rewards={quiet: -1.0}", "task.test_count=24", "decoding.temperature=0"]
    result, _ = evaluate(load_model("tiny:masked"), load_config(EvalConfig, layers))
    first = logged(folder)[0]
    assert (first["eval/accuracy"], first["eval/low"], first["eval/high"]) == (result.accuracy, result.low, result.high)
