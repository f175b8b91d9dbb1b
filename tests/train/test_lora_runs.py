"""Runs with an adapter: resumed, learning, chained and exported."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dare.config import load_config
from dare.errors import DareError
from dare.export import export
from dare.models.checkpoint import Checkpoint
from dare.models.lora_files import adapter_base, load_adapter
from dare.rewards import registry
from dare.train.config import RLConfig, SFTConfig
from dare.train.folder import checkpoints
from dare.train.rl import train_rl
from dare.train.run import load_model
from dare.train.sft import train_sft

SHORT = ["task.train=sudoku_small", "task.train_count=30", "decoding={max_new_tokens: 17, steps: 2}", "train.batch=4"]
LORA = ["model.lora={rank: 4}", "optim.lr=1e-2"]


def sft(folder: Path, *more: str) -> Path:
    return train_sft(load_config(SFTConfig, [f"output={folder}", *SHORT, *more]))


def rl(folder: Path, *more: str) -> Path:
    algorithm = "algorithm={name: d1, group_size: 4, updates: 2, kl_coef: 0.5}"
    settings = [algorithm, "decoding.temperature=1.0", "task.rewards={variety: 1.0}", "optim.lr=1e-2"]
    return train_rl(load_config(RLConfig, [f"output={folder}", *SHORT, *settings, *more]))


def logs(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def logits(checkpoint: Checkpoint) -> torch.Tensor:
    model = checkpoint.model
    return model.head(model.hidden(torch.arange(40)[None], torch.tensor([40]))).detach()


def relative_gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def assert_same_bits(one: Path, other: Path, weights: str) -> None:
    for name in (weights, "optimizer.safetensors"):
        first, second = (load_file(checkpoints(folder)[-1] / name) for folder in (one, other))
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert torch.equal(value, second[key]), f"{name}: {key}"


@pytest.fixture
def variety(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that differs among the answers of an untrained model, so that every step moves the policy."""
    monkeypatch.setitem(registry.REWARDS, "variety", lambda completion, **_: len(set(completion)) / 17)


def test_sft_3_and_resume_3_equals_6(tmp_path: Path) -> None:
    whole = sft(tmp_path / "whole", *LORA, "train.steps=6", "optim.schedule=cosine")
    half = sft(tmp_path / "half", *LORA, "train.steps=6", "optim.schedule=cosine", "train.save_every=3")
    checkpoints(half)[-1].rename(tmp_path / "gone")
    sft(half, *LORA, "train.steps=6", "optim.schedule=cosine", "resume=true")
    assert_same_bits(whole, half, "adapter_model.safetensors")


@pytest.mark.parametrize("lora", [(), ("model.lora={rank: 4}",)], ids=["full", "lora"])
def test_rl_resumes_with_the_reference_it_started_from(tmp_path: Path, variety: None, lora: tuple[str, ...]) -> None:
    whole = rl(tmp_path / "whole", *lora, "train.steps=4")
    half = rl(tmp_path / "half", *lora, "train.steps=4", "train.save_every=2")
    checkpoints(half)[-1].rename(tmp_path / "gone")
    rl(half, *lora, "train.steps=4", "resume=true")
    assert_same_bits(whole, half, "adapter_model.safetensors" if lora else "model.safetensors")
    assert all(line["grad_norm"] > 0 for line in logs(whole))
    assert [line["kl"] for line in logs(half)] == [line["kl"] for line in logs(whole)]


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
def test_the_loss_falls(tmp_path: Path, model: str) -> None:
    folder = sft(tmp_path / "run", f"model.path={model}", *LORA, "train={steps: 30, batch: 16}")
    # the loss itself is weighted by 1/t and jumps with the drawn rate; the plain cross-entropy does not
    levels = [[line[name] for name in line if name.startswith("loss/t_") and line[name]] for line in logs(folder)]
    entropies = [sum(level) / len(level) for level in levels]
    assert sum(entropies[-5:]) < 0.75 * sum(entropies[:5])


def test_a_checkpoint_is_the_adapter_and_knows_its_base(tmp_path: Path) -> None:
    newest = checkpoints(sft(tmp_path / "run", *LORA, "train={steps: 1, seed: 3}"))[-1]
    assert not list(newest.glob("model*")) and (newest / "config.json").is_file()
    assert (newest / "tokenizer.json").is_file() and adapter_base(newest) == ("tiny:masked", "3")
    base = load_model("tiny:masked", seed=3)
    together = logits(Checkpoint(load_adapter(base.model, newest), base.config, base.tokenizer))
    assert relative_gap(logits(load_model(str(tmp_path / "run"))), together) < 1e-5


def test_an_adapter_on_an_adapter_and_a_lost_base(tmp_path: Path) -> None:
    first = sft(tmp_path / "first", *LORA, "train.steps=2")
    second = sft(tmp_path / "second", f"model.path={first}", *LORA, "train.steps=2")
    assert adapter_base(checkpoints(second)[-1])[0] == str(checkpoints(first)[-1])
    assert not torch.equal(logits(load_model(str(second))), logits(load_model(str(first))))
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(DareError, match="is not there; correct base_model_name_or_path"):
        load_model(str(second))


@pytest.mark.parametrize("settings", [(), LORA], ids=["full", "lora"])
def test_an_export_is_complete_and_repeatable(tmp_path: Path, settings: list[str], capsys) -> None:
    run = sft(tmp_path / "run", *settings, "train.steps=2")
    one, two = tmp_path / "one", tmp_path / "two"
    export(str(run), one)
    printed = capsys.readouterr().out
    assert all(
        name in printed for name in ("model.safetensors", "config.json", "chat_template.jinja", "tokenizer.json")
    )
    two.mkdir()
    export(str(checkpoints(run)[-1]), two)
    assert sorted(file.name for file in one.iterdir()) == sorted(file.name for file in two.iterdir())
    assert all(file.read_bytes() == (two / file.name).read_bytes() for file in one.iterdir())
    assert not list(one.glob("adapter*")) and not list(tmp_path.glob(".*"))
    assert torch.equal(logits(load_model(str(one))), logits(load_model(str(run))))
    with pytest.raises(DareError, match="exists and is not empty"):
        export(str(run), two)


def test_an_export_computes_what_base_and_adapter_do(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    export("tiny:block", base)
    run = sft(tmp_path / "run", f"model.path={base}", *LORA, "train.steps=3")
    export(str(run), out)
    together = load_model(str(base), dtype="float64")
    before = logits(together)
    load_adapter(together.model, checkpoints(run)[-1])
    assert relative_gap(logits(load_model(str(out), dtype="float64")), logits(together)) < 1e-6
    assert relative_gap(before, logits(together)) > 0.1


def test_an_export_keeps_precision_and_generation_config(tmp_path: Path) -> None:
    base = tmp_path / "base"
    export(str(sft(base / "run", "train.steps=1", "engine.dtype=bfloat16")), base / "hf")
    generation = {"max_length": 7}
    (base / "hf" / "generation_config.json").write_text(json.dumps(generation))
    config = json.loads((base / "hf" / "config.json").read_text())
    (base / "hf" / "config.json").write_text(json.dumps({**config, "torch_dtype": "float16"}))
    run = sft(tmp_path / "run", f"model.path={base / 'hf'}", *LORA, "train.steps=1")
    export(str(run), tmp_path / "out")
    assert {w.dtype for w in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == generation
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dare.export.save_model", lambda folder, _: (folder / "half").write_text("") / 0)
    with pytest.raises(ZeroDivisionError):
        export("tiny:masked", tmp_path / "out")
    assert not list(tmp_path.iterdir())
