"""Every model with every task with every algorithm, as settings; ``dare plan`` on published folders; the recipes."""

import re
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import yaml

import dare.plan_memory
import dare.sketch
from dare.algorithms.config import AlgorithmConfig
from dare.algorithms.registry import AnyAlgorithm
from dare.config import load_config, merge
from dare.data.tasks import TASKS
from dare.errors import DareError
from dare.models.checkpoint import kind_of, load_checkpoint
from dare.models.tokenizer import load_tokenizer
from dare.models.transformer import Transformer
from dare.plan import plan
from dare.plan_memory import kept_bytes
from dare.train.config import RLConfig
from dare.train.rl import train_rl

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
# folders without a published one in the shared data stand beside a sibling of the same shape
STAND_INS = {"LLaDA-1.5": "LLaDA-8B-Instruct", "SDAR-1.7B-Chat": "SDAR-8B-Chat", "SDAR-4B-Chat": "SDAR-8B-Chat"}
KINDS = {name: kind for kind in get_args(get_args(AnyAlgorithm)[0]) for name in [kind.model_fields["name"].default]}


@cache
def layer(part: str, name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGS / part / f"{name}.yaml").read_text())


def names(part: str) -> list[str]:
    return sorted(file.stem for file in (CONFIGS / part).glob("*.yaml"))


MODELS, ALGORITHMS = names("model"), names("algorithm")
GRADED = [
    name for name in names("task") if (train := str(layer("task", name)["task"]["train"])) in TASKS or "rl/" in train
]
WITH_TOKENIZER = ("dream_7b", "sdar_8b", "tiny_masked", "tiny_block")


def folder_of(model: str, shared: Path) -> str:
    path = layer("model", model)["model"]["path"]
    name = Path(path).name
    return path if path.startswith("tiny:") else str(shared / "data" / "checkpoints" / STAND_INS.get(name, name))


def rl_algorithm(name: str) -> type[AlgorithmConfig] | None:
    """The settings class of an algorithm's layer; None where it is not one of ``dare rl``."""
    return KINDS.get(layer("algorithm", name).get("algorithm", {}).get("name"))


RL = [name for name in ALGORITHMS if rl_algorithm(name)]


def refusal(model: str, algorithm: str, shared: Path) -> str | None:
    kind = kind_of(folder_of(model, shared))
    assert kind is not None
    return rl_algorithm(algorithm).refuses.get(kind[1])


def test_the_walk_is_a_walk() -> None:
    assert len(MODELS) >= 11 and len(GRADED) >= 6 and len(RL) >= 15
    assert all(name in {layer("algorithm", one)["algorithm"]["name"] for one in RL} for name in KINDS)


def test_every_triple_is_settled_when_it_is_read(shared: Path) -> None:
    """Valid ones load, impossible ones are refused with algorithm, family and reason; nothing else happens."""
    seen = {"loaded": 0, "refused": 0}
    for model, task, algorithm in product(MODELS, GRADED, RL):
        parts = (layer("model", model), layer("task", task), layer("algorithm", algorithm))
        merged: Mapping[str, Any] = {}
        for part in parts:
            merged = merge(merged, part)
        overrides = ["output=unused", f"model.path={folder_of(model, shared)}"]
        if reason := refusal(model, algorithm, shared):
            with pytest.raises(DareError) as caught:
                load_config(RLConfig, overrides, base=merged)
            family = kind_of(folder_of(model, shared))[0]
            assert f"algorithm {parts[2]['algorithm']['name']} cannot train {family}" in str(caught.value)
            assert reason in str(caught.value) and "set model.path" in str(caught.value)
            seen["refused"] += 1
        else:
            assert load_config(RLConfig, overrides, base=merged).algorithm.name == parts[2]["algorithm"]["name"]
            seen["loaded"] += 1
    assert min(seen.values()) > 50


def test_a_model_that_is_not_there_is_judged_when_it_is_loaded(tmp_path: Path) -> None:
    layers = [
        str(CONFIGS / "model" / "sdar_8b.yaml"),
        str(CONFIGS / "algorithm" / "mdpo.yaml"),
        f"output={tmp_path / 'run'}",
    ]
    config = load_config(RLConfig, [*layers, "task.train=sudoku_small", "task.train_count=4"])
    with pytest.raises(DareError, match=r"models/SDAR-8B-Chat.*no config.json there"):
        train_rl(config)
    late = config.model_copy(update={"model": config.model.model_copy(update={"path": "tiny:block"})})
    with pytest.raises(DareError, match="algorithm mdpo cannot train tiny"):
        train_rl(late)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def planned(shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """``dare plan rl`` of a triple with few rows; what hangs on the model alone is read and measured once."""
    monkeypatch.setattr(dare.sketch, "load_tokenizer", _tokenizer)
    monkeypatch.setattr(dare.plan_memory, "kept_bytes", _kept_bytes)
    monkeypatch.setenv("COLUMNS", "400")

    def run(model: str, task: str, algorithm: str, *more: str) -> dict[str, str]:
        parts = [
            str(CONFIGS / part / f"{name}.yaml") for part, name in zip(PARTS, (model, task, algorithm), strict=True)
        ]
        here = [f"model.path={folder_of(model, shared)}", f"task.root={shared / 'data'}", "task.train_count=4"]
        plan("rl", [*parts, *here, "output=unused", "train.batch=1", *more])
        rows = [re.split(" *│ *", line)[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
        return {name: value for name, value in rows if name}

    return run


PARTS = ("model", "task", "algorithm")
_tokenizer, _measured = cache(load_tokenizer), {}


def _kept_bytes(model: Transformer, width: int, read: float) -> int:
    key = (model.arch, model.spec, len(list(model.parameters())), width, read)
    if key not in _measured:
        _measured[key] = kept_bytes(model, width, read=read)
    return _measured[key]


@pytest.mark.parametrize(("model", "task"), list(product(WITH_TOKENIZER, GRADED)))
def test_plan_takes_every_task_on_every_model(planned, model: str, task: str) -> None:
    rows = planned(model, task, "bgpo")
    sources = layer("task", task)["task"]["train"]
    kept = 4 * (len(sources) if isinstance(sources, dict) else 1)
    assert rows["rows"] == f"{kept} kept, 0 left out" and "GB for" in rows["activations in memory"]
    assert ("not there yet" in rows.get("weights", "")) == (not model.startswith("tiny"))
    assert ("probe" in rows) == model.startswith("tiny")


@pytest.mark.parametrize("algorithm", RL)
def test_plan_takes_every_algorithm_on_every_model(planned, shared: Path, algorithm: str) -> None:
    for model in WITH_TOKENIZER:
        if reason := refusal(model, algorithm, shared):
            with pytest.raises(DareError, match=re.escape(reason)):
                planned(model, "countdown", algorithm)
        else:
            rows = planned(model, "countdown", algorithm)
            assert f"name={rl_algorithm(algorithm).model_fields['name'].default}," in rows["algorithm"]
            assert "tokenizer" not in rows


def test_plan_without_files_says_what_is_missing_and_measures_the_rest(planned) -> None:
    rows = planned("llada_8b", "math", "d1")
    assert rows["model"] == "llada, 8015.58 M parameters, attention full" and "rows" not in rows
    assert rows["weights in memory"] == "160.312 GB, 8015.58 M parameters trained"  # with Adam and the reference
    adapted = planned("llada_8b", "math", "d1", str(CONFIGS / "recipe" / "lora_r128.yaml"))
    assert adapted["weights in memory"].startswith("18.") and "M parameters trained" in adapted["weights in memory"]
    assert "no usable tokenizer" in rows["tokenizer"]


@pytest.mark.parametrize("model", ["llada20_mini", "llada21_mini", "sdar_30b_a3b"])
def test_plan_of_sparse_models(planned, model: str) -> None:
    rows = planned(model, "math", "d1")
    assert "not there yet" in rows["tokenizer"] and "experts" in rows["activations in memory"]
    assert rows["ids"].startswith("mask 151669" if model.startswith("sdar") else "not known yet;")


@pytest.mark.parametrize("name", ["tiny:masked", "tiny:block"])
def test_activations_without_storage_are_those_of_attention_that_is_not_fused(name: str) -> None:
    model, hollow = load_checkpoint(name).model, load_checkpoint(name).model.to("meta")
    backends = torch.nn.attention.SDPBackend
    with torch.nn.attention.sdpa_kernel(backends.MATH):
        assert kept_bytes(hollow, 40) == pytest.approx(kept_bytes(model, 40), rel=0.01)


def test_the_release_is_what_was_read_in_it() -> None:
    """HYPERPARAMS of the shared data, section 1: what all its recipes share, and the row of d1 on LLaDA."""
    order = ["model/llada_8b", "task/math", "algorithm/d1", "recipe/release", "recipe/release_grpo", "model/llada_8b"]
    run = load_config(RLConfig, [*(str(CONFIGS / f"{name}.yaml") for name in order), "output=unused"])
    assert (run.train.batch, run.algorithm.group_size, run.algorithm.updates, run.task.max_prompt_tokens) == (
        16,
        8,
        1,
        512,
    )
    assert (run.optim.lr, run.optim.weight_decay, run.optim.max_grad_norm, run.optim.schedule) == (
        5e-7,
        0.01,
        1.0,
        "constant",
    )
    clip = (run.algorithm.clip_low, run.algorithm.clip_high, run.algorithm.dual_clip)
    assert clip == (0.2, 0.2, 3.0) and (run.algorithm.baseline, run.algorithm.aggregate) == ("std", "unit_mean")
    assert run.algorithm.kl_coef == 0 and run.algorithm.prompt_rate == 0.15 and run.model.lora is None
    decoding = (run.decoding.max_new_tokens, run.decoding.steps, run.decoding.block_size, run.decoding.temperature)
    assert decoding == (512, 256, 32, 0.6)


def words(command: str) -> list[str]:
    return [str(ROOT / word) if word.endswith(".yaml") else word for word in command.split()[2:]]


def documented() -> list[str]:
    page = (ROOT / "docs" / "recipes.md").read_text()
    return re.findall(r"^dare rl .*$", page, flags=re.MULTILINE)


@pytest.mark.parametrize("command", documented())
def test_documented_commands_load(command: str) -> None:
    assert load_config(RLConfig, [*words(command), "output=unused"])


def test_every_recipe_is_documented_and_loads_behind_its_algorithm() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    lines = [line.strip("|").split("|") for line in page.split("| recipe |")[1].splitlines() if line.startswith("| `")]
    table = [[cell.strip(" `") for cell in line] for line in lines]
    listed = {row[0] for row in table}
    assert listed == set(names("recipe"))
    for recipe, algorithms, models, before in (row[:4] for row in table):
        for algorithm, model in product(algorithms.split(), models.split()):
            layers = [CONFIGS / "model" / f"{model}.yaml", CONFIGS / "task" / "countdown.yaml"]
            layers += [CONFIGS / "algorithm" / f"{algorithm}.yaml"]
            layers += [CONFIGS / "recipe" / f"{name}.yaml" for name in [*before.split(), recipe] if name != "-"]
            assert load_config(RLConfig, [*map(str, layers), "output=unused"])
