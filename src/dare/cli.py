"""The command line: one verb per job. Heavy modules are imported inside the verbs, so ``--help`` answers at once."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dare.errors import DareError

app = typer.Typer(
    help="Post-train and evaluate diffusion language models. Settings are YAML files, then key=value overrides.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Layers = Annotated[list[str] | None, typer.Argument(help="YAML files and key=value overrides, later ones win.")]


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    try:
        app()
    except DareError as error:
        text = f"[bold red]{error.label}:[/] {_plain(str(error))}"
        Console(stderr=True, emoji=False).print(text, soft_wrap=True, highlight=False)
        sys.exit(error.status)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


@app.command()
def quickstart(layers: Layers = None) -> None:
    """SFT, RL and evaluation of the embedded model: a table, curves and an HTML report in minutes."""
    from dare.config import load_config
    from dare.quickstart import QuickstartConfig
    from dare.quickstart import quickstart as run

    run(load_config(QuickstartConfig, layers or [], base=QuickstartConfig().model_dump(mode="json")))


@app.command()
def sft(layers: Layers = None) -> None:
    """Supervised fine-tuning."""
    from dare.config import load_config
    from dare.train.config import SFTConfig
    from dare.train.sft import train_sft

    _done(train_sft(load_config(SFTConfig, layers or [])))


@app.command()
def dpo(layers: Layers = None) -> None:
    """Preference optimisation on pairs of answers."""
    from dare.config import load_config
    from dare.train.config import DPORunConfig
    from dare.train.dpo import train_dpo

    _done(train_dpo(load_config(DPORunConfig, layers or [])))


@app.command()
def rl(layers: Layers = None) -> None:
    """Reinforcement learning with any algorithm."""
    from dare.config import load_config
    from dare.train.config import RLConfig
    from dare.train.rl import train_rl

    _done(train_rl(load_config(RLConfig, layers or [])))


@app.command("eval")
def evaluate_(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, run folder or tiny:NAME.")], layers: Layers = None
) -> None:
    """Accuracy on held-out rows with a 95 % interval."""
    from dare.config import load_config
    from dare.evaluation.config import EvalConfig
    from dare.evaluation.run import evaluate_and_show

    evaluate_and_show(model, load_config(EvalConfig, layers or []))


@app.command()
def generate(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, run folder or tiny:NAME.")],
    layers: Layers = None,
    prompt: Annotated[str | None, typer.Option(help="The user's turn.")] = None,
    text: Annotated[str | None, typer.Option(help="Text to fill in: <mask> one token, <mask*8> eight.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="A conversation; an empty line ends it.")] = False,
    suffix: Annotated[str, typer.Option(help="Fixed text behind the answer.")] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Read the prompt as it is, without the chat template.")] = False,
    n: Annotated[int, typer.Option(help="Samples.")] = 1,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends the answer; may be repeated.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show every denoising step.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the steps as a page.")] = None,
    save: Annotated[Path | None, typer.Option(help="Append the rollouts to a .jsonl file, for dare view.")] = None,
) -> None:
    """Decode an answer, fill in a text, or chat."""
    from dare.config import load_config
    from dare.generate.config import GenerateConfig, Wishes
    from dare.generate.run import generate as run

    wishes = Wishes(prompt, text, chat, suffix, raw, n, tuple(stop or ()), trace, html, save)
    run(model, wishes, load_config(GenerateConfig, layers or []))


@app.command()
def view(
    place: Annotated[str, typer.Argument(help="Rollout file or run folder, with :ROW for one row of it.")],
    html: Annotated[Path | None, typer.Option(help="Write a page instead.")] = None,
) -> None:
    """Play saved rollouts of generate, eval or rl, denoising step by step."""
    from dare.view import view as run

    run(place, html)


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, run folder or tiny:NAME.")], layers: Layers = None
) -> None:
    """Answer OpenAI-compatible requests over HTTP."""
    from dare.config import load_config
    from dare.serving.config import ServeConfig
    from dare.serving.run import serve as run

    run(model, load_config(ServeConfig, layers or []))


@app.command("export")
def export_(
    model: Annotated[str, typer.Argument(help="Run folder or checkpoint folder, with or without an adapter.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
) -> None:
    """Write a complete Hugging Face folder: adapter merged, tokenizer and chat template included."""
    from dare.export import export

    export(model, out)


@app.command()
def convert(
    model: Annotated[str, typer.Argument(help="Llama, Qwen2 or Qwen3 folder, .gguf file, or a converted model.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
    to: Annotated[str, typer.Option(help="masked or block.")] = "masked",
    block_size: Annotated[int | None, typer.Option(help="Positions per block, with --to block.")] = None,
    alignment: Annotated[
        str | None, typer.Option(help="Which state predicts a token: next (the one before it, the default) or same.")
    ] = None,
) -> None:
    """Turn an autoregressive checkpoint into the starting point of a masked or block diffusion model."""
    from dare.convert import convert_named

    convert_named(model, out, to, block_size, alignment)


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, run folder or tiny:NAME.")],
    layers: Layers = None,
    prompt: Annotated[str | None, typer.Option(help="The user's turn.")] = None,
    answer: Annotated[str | None, typer.Option(help="The answer to score; without both, a task's answers.")] = None,
    estimator: Annotated[list[str] | None, typer.Option(help="May be repeated; all that apply, if none.")] = None,
) -> None:
    """Log-likelihood of answers, by one or several estimators."""
    from dare.config import load_config
    from dare.score import score as run
    from dare.score_config import ScoreConfig

    run(model, estimator or [], prompt, answer, load_config(ScoreConfig, layers or []))


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Run folder; it may still be training.")]) -> None:
    """Write a run's curves.png and report.html: results, alarms, learning curves, answers."""
    from dare.evaluation.report import write_report

    Console(stderr=True).print(f"report: {write_report(run, run.name)}", highlight=False)


@app.command()
def runs(
    places: Annotated[list[Path] | None, typer.Argument(help="A folder with runs (runs), or runs to compare.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the compared runs over each other, as a .png file.")] = None,
) -> None:
    """List runs with their state and best metric; several: compare settings and curves."""
    from dare.runs import runs as run

    run(places or [Path("runs")], chart)


@app.command()
def plan(verb: Annotated[str, typer.Argument(help="sft, dpo or rl.")], layers: Layers = None) -> None:
    """Check a run's settings, model and data, and print its sizes, before any compute."""
    from dare.plan import plan as run

    run(verb, layers or [])


data = typer.Typer(help="Look at training data.", no_args_is_help=True)
app.add_typer(data, name="data")


@data.command("check")
def data_check(
    files: Annotated[list[str], typer.Argument(help="Files, globs, saved datasets or hf:NAME, each with a [slice].")],
    model: Annotated[str | None, typer.Option(help="Count tokens of this model; without it, characters.")] = None,
    question_column: Annotated[str | None, typer.Option(help="As task.question_column.")] = None,
    answer_column: Annotated[str | None, typer.Option(help="As task.answer_column.")] = None,
    show: Annotated[int, typer.Option(help="Bad rows to print of each file.")] = 20,
) -> None:
    """Check every row of data files: bad rows with the fix, lengths. Exit status 1 if a row is bad."""
    from dare.data_check import check

    if not check(files, model, question_column, answer_column, show):
        raise typer.Exit(1)


reward = typer.Typer(help="Look at rewards.", no_args_is_help=True)
app.add_typer(reward, name="reward")


@reward.command("list")
def reward_list() -> None:
    """Every reward by name, and what it gives."""
    from dare.reward_table import list_rewards

    list_rewards()


@reward.command("try")
def reward_try(
    name: Annotated[str, typer.Argument(help="A reward, package.module.function or path/to/file.py:function.")],
    file: Annotated[str, typer.Argument(help="Data file, glob, saved dataset or hf:NAME, with a [slice].")],
    options: Annotated[list[str] | None, typer.Argument(help="Options of the reward, as NAME=VALUE.")] = None,
    completion: Annotated[str | None, typer.Option(help="Column to grade; else completion, response, ...")] = None,
    score: Annotated[str | None, typer.Option(help="Column to compare with; else score or reward, if any.")] = None,
    show: Annotated[int, typer.Option(help="Rows to print, besides those that fail or differ.")] = 20,
) -> None:
    """Grade the rows of a file. Exit status 1 if a row fails or its score differs from the one in the file."""
    from dare.reward_try import try_reward

    if not try_reward(name, file, options or [], completion, score, show):
        raise typer.Exit(1)


def _done(folder: Path) -> None:
    Console(stderr=True).print(f"run folder: {folder}", highlight=False)
