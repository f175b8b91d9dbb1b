"""Real runs on every kind of source: packed text, mixtures, streams; a resumed one is the same to the bit."""

import json

import pytest
import torch
from safetensors.torch import load_file

from dare.config import load_config
from dare.train.config import SFTConfig
from dare.train.folder import checkpoints
from dare.train.sft import train_sft


@pytest.fixture
def root(tmp_path):
    documents = [{"text": f"Document {i}. " + "la " * (i % 7)} for i in range(20)]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, documents)))
    chats = [[{"role": r, "content": f"{r[0]}{i}"} for r in ("user", "assistant") * 2] for i in range(9)]
    (tmp_path / "chats.jsonl").write_text("\n".join(json.dumps({"messages": chat}) for chat in chats))
    (tmp_path / "texts.csv").write_text("prompt,completion\n" + "\n".join(f"p{i},c{i}" for i in range(7)))
    return tmp_path


RUNS = {
    "packed": ["task.train=docs.jsonl", "task.pack=24"],
    "mixed": ["task.train={chats.jsonl: 2, texts.csv: 1}", "task.turns=all_turns"],
    "streamed": ["task.train={chats.jsonl: 2, texts.csv: 1}", "task.stream=4", "task.turns=random_prefix"],
    "streamed and packed": ["task.train=docs.jsonl", "task.pack=24", "task.stream=6"],
}


@pytest.mark.parametrize("model", ["tiny:masked", "tiny:block"])
@pytest.mark.parametrize("name", RUNS)
def test_4_and_resume_2_equals_6(root, name, model):
    def run(folder, *more):
        small = [f"task.root={root}", "train.steps=6", "train.batch=3", "decoding.max_new_tokens=12"]
        return train_sft(
            load_config(SFTConfig, [f"output={root / folder}", f"model.path={model}", *small, *RUNS[name], *more])
        )

    whole = run("whole")
    run("parts", "train.save_every=4")
    late = checkpoints(root / "parts")[-1]
    late.rename(root / "gone")
    parts = run("parts", "resume=true")
    one, other = (load_file(checkpoints(folder)[-1] / "model.safetensors") for folder in (whole, parts))
    assert all(torch.equal(one[key], other[key]) for key in one)
    losses = [json.loads(line)["loss"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < loss < 100 for loss in losses)
