import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from dare.diffusion.canvas import noised_canvas, whole_canvases
from dare.diffusion.noise import key
from dare.errors import DareError
from dare.models.checkpoint import load_checkpoint
from dare.models.diffusion_gemma import generate, load, sft_loss
from dare.types import Sequences
from dare.types import pack as pack_rows

CANVAS, EOS, PAD, WORDS = 4, 1, 0, 24
TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 16,
    "initializer_range": 0.1,
}
VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "position_embedding_size": 16,
}
PROMPT, ANSWER = [5, 9, 6, 11, 7, 8, 13], [12, 3, 17, 4, 9, 21]


UNEQUAL = [([5, 6], [7, 5, 8]), ([6], [5, 5, 6, 6, 5, 8]), ([6, 5, 5, 6], [6]), ([5], [6, 6]), ([7, 7, 5], [5, 6])]


def pack(pairs: list[tuple[list[int], list[int]]], pad_id: int = PAD, extra: int = 0) -> Sequences:
    """Rows of (prompt, answer), padded on the right with ``extra`` more columns than needed."""
    seqs = pack_rows([[*prompt, *answer] for prompt, answer in pairs], [len(prompt) for prompt, _ in pairs], pad_id)
    return Sequences(F.pad(seqs.ids_BT, (0, extra), value=pad_id), F.pad(seqs.response_BT, (0, extra)), seqs.lengths_B)


def keys(rows: int, name: str = "test") -> torch.Tensor:
    """One noise key per row."""
    return key(name, torch.arange(rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model as transformers saves it."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("diffusion_gemma")
    config = DiffusionGemmaConfig(text_config=TEXT, vision_config=VISION, canvas_length=CANVAS)
    DiffusionGemmaForBlockDiffusion(config).save_pretrained(path)
    return path


@pytest.fixture
def model(folder: Path):
    return load(str(folder))


def copied(folder: Path, out: Path, **change: object) -> Path:
    for name in ("config.json", "generation_config.json"):
        (out / name).write_text((folder / name).read_text())
    (out / "config.json").write_text(json.dumps({**json.loads((out / "config.json").read_text()), **change}))
    (out / "model.safetensors").symlink_to(folder / "model.safetensors")
    return out


def test_a_folder_loads_with_the_weights_it_holds(folder: Path, model) -> None:
    stored = load_file(folder / "model.safetensors")
    state = model.state_dict()
    assert type(model) is DiffusionGemmaForBlockDiffusion
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    assert state["lm_head.weight"].data_ptr() == state["model.decoder.embed_tokens.weight"].data_ptr()


def test_another_family_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DareError, match=r"'LLaDAModelLM'.*load_checkpoint"):
        load(str(copied(folder, tmp_path, architectures=["LLaDAModelLM"])))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_experts": 5}, "mismatched tensor.*(router|experts)"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_experts": None}, "NoneType"),
    ],
)
def test_a_config_that_disagrees_is_refused(folder: Path, tmp_path: Path, change: dict, named: str) -> None:
    with pytest.raises(DareError, match=named):
        load(str(copied(folder, tmp_path, text_config={**TEXT, **change})))


def test_missing_and_pickled_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    gone = min(name for name in tensors if "self_conditioning" in name)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    save_file({k: v for k, v in tensors.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(DareError, match=f"missing tensor '{gone}'"):
        load(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with pytest.raises(DareError, match="safetensors"):
        load(str(tmp_path))


def test_the_commands_refuse_it_and_name_its_module(folder: Path) -> None:
    """Every command loads its model here: none goes on to decode or train with a mask that does not exist."""
    with pytest.raises(DareError, match=r"no mask token.*dare\.models\.diffusion_gemma"):
        load_checkpoint(str(folder))


def test_the_noise_of_a_row_depends_on_its_key_alone() -> None:
    key_B = keys(len(UNEQUAL))
    wide = whole_canvases(pack(UNEQUAL, pad_id=7, extra=9), CANVAS, EOS)
    together = noised_canvas(wide, key_B, CANVAS, WORDS)
    for row, pair in enumerate(UNEQUAL):
        alone = noised_canvas(whole_canvases(pack([pair]), CANVAS, EOS), key_B[row : row + 1], CANVAS, WORDS)
        for got, expected in zip(vars(alone).values(), vars(together).values(), strict=True):
            assert torch.equal(got[0], expected[row])


def test_answers_are_filled_with_eos_and_cut_into_canvases() -> None:
    seqs = whole_canvases(pack([([5, 6], [8, 9, 10, 11, 12]), ([5], [8, 9, 10, 11])]), CANVAS, EOS)
    assert seqs.ids_BT.tolist() == [[5, 6, 8, 9, 10, 11, 12, EOS, EOS, EOS], [5, 8, 9, 10, 11, *[PAD] * 5]]
    assert seqs.response_BT.sum(1).tolist() == [8, 4] and seqs.lengths_B.tolist() == [10, 5]
    starts = {int(noised_canvas(seqs, keys(2, f"{i}"), CANVAS, WORDS).start_B[0]) for i in range(20)}
    assert starts == {2, 6}


def test_corruption_is_uniform_over_the_vocabulary_at_the_drawn_rate() -> None:
    rows, length = 20_000, 8
    seqs = pack([([], [2] * length)]).select(torch.zeros(rows, dtype=torch.int64))
    canvas = noised_canvas(seqs, keys(rows), length, WORDS)
    changed_BC = canvas.noised_BC != canvas.clean_BC
    counts_V = canvas.noised_BC[changed_BC].bincount(minlength=WORDS)
    # a random word is the clean one, at random, once in WORDS draws
    expected = float(canvas.rate_B.mean()) * (1 - 1 / WORDS)
    assert float(changed_BC.double().mean()) == pytest.approx(expected, abs=0.005)
    high_B = canvas.rate_B > 0.9
    assert float(changed_BC[high_B].double().mean()) == pytest.approx(0.95 * (1 - 1 / WORDS), abs=0.01)
    assert counts_V[2] == 0
    others_V = counts_V[torch.arange(WORDS) != 2] / changed_BC.sum() * (WORDS - 1)
    assert float((others_V - 1).abs().max()) < 0.06


def by_hand(model, seqs, row, key_B, conditioning):
    """The loss of one row through transformers' own forward on the bare prefix, as the sampler calls it."""
    filled = whole_canvases(seqs, CANVAS, EOS)
    canvas = noised_canvas(filled, key_B, CANVAS, WORDS)
    ids_1T, start = filled.ids_BT[row : row + 1, : filled.lengths_B[row]], int(canvas.start_B[row])
    inputs = {"input_ids": ids_1T[:, :start], "decoder_input_ids": canvas.noised_BC[row : row + 1]}
    logits = model(**inputs).logits
    if conditioning:
        logits = model(**inputs, self_conditioning_logits=logits.detach()).logits
    cap = model.config.text_config.final_logit_softcapping
    encoder = model.lm_head(model.model.encoder(input_ids=ids_1T).last_hidden_state)[0]
    encoder = cap * torch.tanh(encoder / cap)
    return F.cross_entropy(logits[0], canvas.clean_BC[row]) + 0.5 * F.cross_entropy(encoder[:-1], ids_1T[0, 1:])


@pytest.mark.parametrize("conditioning", [0.0, 1.0])
def test_training_reads_the_model_as_the_sampler_does(model, conditioning: float) -> None:
    """Rows of unequal length, prompts shorter and longer than the window, first and later canvases."""
    pairs = [(PROMPT, ANSWER), (PROMPT[:2], ANSWER), (PROMPT[:3], ANSWER[:2]), (PROMPT + PROMPT, ANSWER + ANSWER)]
    seqs, key_B = pack(pairs, pad_id=19, extra=3), keys(len(pairs))
    assert int(noised_canvas(whole_canvases(seqs, CANVAS, EOS), key_B, CANVAS, WORDS).start_B[3]) > len(PROMPT) * 2
    got_B = sft_loss(model, seqs, key_B, encoder_weight=0.5, self_conditioning=conditioning)
    for row in range(len(pairs)):
        expected = by_hand(model, seqs, row, key_B, conditioning)
        assert float(got_B[row].detach()) == pytest.approx(float(expected.detach()), abs=2e-5)


def test_gradients_are_those_of_the_sampler_s_reading(model) -> None:
    seqs, key_B = pack([(PROMPT, ANSWER)]), keys(1)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    got = torch.autograd.grad(
        sft_loss(model, seqs, key_B, encoder_weight=0.5, self_conditioning=1.0).sum(), trained.values()
    )
    expected = torch.autograd.grad(by_hand(model, seqs, 0, key_B, 1.0), trained.values())
    for name, a, b in zip(trained, got, expected, strict=True):
        assert float((a - b).norm()) <= 1e-4 * float(b.norm()) + 1e-6, name
    moved = {name for name, gradient in zip(trained, got, strict=True) if float(gradient.norm()) > 0}
    assert not any("vision" in name for name in trained)
    assert set(trained) == moved


def test_a_row_s_loss_does_not_depend_on_its_batch(model) -> None:
    together_B = sft_loss(model, pack(UNEQUAL, pad_id=3, extra=4), keys(len(UNEQUAL)))
    for row, pair in enumerate(UNEQUAL):
        alone_B = sft_loss(model, pack([pair]), keys(len(UNEQUAL))[row : row + 1])
        assert float(alone_B[0].detach()) == pytest.approx(float(together_B[row].detach()), abs=2e-5)


def test_an_untouched_canvas_has_a_finite_loss(model) -> None:
    seqs = pack([(PROMPT, ANSWER[:3])])
    names = (key("untouched", torch.tensor([number])) for number in range(200))
    filled = whole_canvases(seqs, CANVAS, EOS)
    canvases = ((name, noised_canvas(filled, name, CANVAS, WORDS)) for name in names)
    untouched = next(name for name, canvas in canvases if torch.equal(canvas.noised_BC, canvas.clean_BC))
    loss_B = sft_loss(model, seqs, untouched)
    loss_B.sum().backward()
    assert torch.isfinite(loss_B).all()
    assert all(torch.isfinite(w.grad).all() for w in model.parameters() if w.grad is not None)


def test_a_short_run_teaches_the_answer(model, tmp_path: Path) -> None:
    seqs, optimizer = pack([(PROMPT, ANSWER)]), torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(70):
        rows = seqs.select(torch.zeros(4, dtype=torch.int64))
        loss = sft_loss(model, rows, key("run", step, torch.arange(4))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])
    assert generate(model, [PROMPT], 8, seed=0, steps=12) == [[*ANSWER, EOS]]
    model.save_pretrained(tmp_path)
    assert generate(load(str(tmp_path)), [PROMPT], 8, seed=0, steps=12) == [[*ANSWER, EOS]]


def test_sampling_is_a_function_of_prompt_place_and_seed(model) -> None:
    prompts = [PROMPT, PROMPT[:2], PROMPT]
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    answers = generate(model, prompts, 6, seed=1, steps=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    assert generate(model, prompts, 6, seed=1, steps=3) == answers
    assert generate(model, prompts[:1], 6, seed=1, steps=3) == answers[:1]
    assert answers[0] != answers[2]
    assert generate(model, prompts, 6, seed=2, steps=3) != answers
    for answer in answers:
        assert len(answer) == 6 or answer[-1] == EOS


def test_an_empty_prompt_is_refused(model) -> None:
    with pytest.raises(DareError, match="prompt 1 has no tokens"):
        generate(model, [[5], []], 4, seed=0, steps=1)
