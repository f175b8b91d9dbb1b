"""DiffusionGemma (``google/diffusiongemma-26B-A4B-it``), the family without a mask token; text only.

A causal encoder reads prompt and finished canvases into a key-value cache; a decoder with the same weights sees that
cache and, in both directions, one canvas of random and accepted tokens, and predicts at every position the token of
that position. Network and sampler are those of ``transformers.models.diffusion_gemma``.

It is no ``DiffusionLM``. ``hidden(ids, lengths)`` does not tell where the canvas begins, and with random tokens for
noise the ids cannot show it; the decoder also reads logits of an earlier pass (self-conditioning), and the published
objective has a term on the encoder's states. So this module has an interface of its own: ``load``, ``sft_loss`` and
``generate``. A loaded model saves itself with ``save_pretrained``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import DynamicCache

from dare.diffusion.canvas import Canvas, noised_canvas, whole_canvases
from dare.diffusion.noise import key, uniform
from dare.errors import DareError
from dare.models.tokens import read_json
from dare.types import Sequences

ARCHITECTURE = "DiffusionGemmaForBlockDiffusion"


def load(path: str, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Any:
    """Return the folder's ``transformers`` model, its vision tower frozen. No pickle is read and no remote code is run.

    Raises ``DareError`` for another architecture and for missing, unknown or broken files and tensors.
    """
    names = read_json(Path(path) / "config.json").get("architectures") or ["(none)"]
    if names[0] != ARCHITECTURE:
        raise DareError(f"model {path!r}: architecture {names[0]!r}, expected {ARCHITECTURE!r}; use load_checkpoint")
    settings = {"local_files_only": True, "use_safetensors": True, "attn_implementation": "sdpa", "dtype": dtype}
    reporting = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        model, report = _model_class().from_pretrained(path, **settings, **reporting)
    except (OSError, RuntimeError, TypeError, ValueError, SafetensorError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise DareError(f"model {path!r}: {reason}; download the folder again, with its safetensors files") from error
    for kind in ("missing", "unexpected", "mismatched"):
        if found := report[f"{kind}_keys"]:
            raise DareError(f"model {path!r}: {kind} tensor {min(found)!r}; download the folder again")
    for module in (model.model.encoder.vision_tower, model.model.encoder.embed_vision):
        module.requires_grad_(False)
    return model.to(device)


def sft_loss(
    model: Any, seqs: Sequences, key_B: Tensor, *, encoder_weight: float = 1.0, self_conditioning: float = 0.5
) -> Tensor:
    """Return the loss of every row ``[B]`` in nats per token; sum, then divide once by the number of rows.

    The objective of the authors' fine-tuning code (google-deepmind/gemma, ``hd/sft_model.py`` and
    ``configs/sft_sudoku.py`` of ``gemma/diffusion/hackable_diffusion_adapter``), with its weights as defaults:

    - answers go on with EOS to the end of a canvas; one canvas per row is chosen, noised and decoded;
    - cross-entropy of the clean token at *every* position of that canvas, kept tokens included, with weight 1 at
      every rate. It is no evidence bound, so its value is no likelihood;
    - with probability ``self_conditioning`` a row reads its own logits of a first pass without a gradient;
    - plus ``encoder_weight`` times the next-token cross-entropy of the encoder on the clean row.
    """
    config = model.config
    seqs = whole_canvases(seqs, config.canvas_length, _eos_ids(model)[0])
    canvas = noised_canvas(seqs, key_B, config.canvas_length, config.text_config.vocab_size)
    conditioned_B = uniform(key(key_B, "self-conditioning"), 1)[:, 0] < self_conditioning
    # without a config every layer keeps the whole row: a cut to the window would keep the row's end, not the canvas's
    cache = DynamicCache()
    encoded = model.model.encoder(input_ids=seqs.ids_BT, attention_mask=seqs.valid_BT, cache=cache)
    logits_BCV = _canvas_logits(model, cache, seqs, canvas, conditioned_B)
    denoising_BC = F.cross_entropy(logits_BCV.transpose(1, 2), canvas.clean_BC, reduction="none")
    return denoising_BC.mean(1) + encoder_weight * _next_token_loss(model, encoded.last_hidden_state, seqs)


def generate(
    model: Any, prompts: Sequence[Sequence[int]], max_new_tokens: int, seed: int, *, steps: int | None = None
) -> list[list[int]]:
    """Return one answer per prompt, up to and including its end token, from the entropy-bound sampler of transformers.

    ``steps`` caps the denoising steps per canvas; all else comes from the folder's ``generation_config.json``. Prompts
    are decoded one at a time, so that an answer depends on its prompt, its place and ``seed``, not on its company.
    """
    settings = {"max_new_tokens": max_new_tokens, "max_length": None, "eos_token_id": _eos_ids(model)}
    if steps is not None:
        settings["max_denoising_steps"] = steps
    answers = []
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise DareError(f"prompt {number} has no tokens; the encoder needs at least one")
        ids_1T = torch.tensor([prompt], device=model.device)
        # the sampler takes no generator: it draws from the global one
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(int(key(seed, "generate", number)))
            sequence_T = model.generate(ids_1T, **settings).sequences[0]
        answers.append(_until_end(sequence_T[len(prompt) :].tolist()[:max_new_tokens], _eos_ids(model)))
    return answers


def _canvas_logits(model: Any, cache: Any, seqs: Sequences, canvas: Canvas, conditioned_B: Tensor) -> Tensor:
    """Decode the noised canvas after the clean tokens before it; a second time where a row reads its own logits."""
    inputs = {
        "cache": cache,
        "decoder_input_ids": canvas.noised_BC,
        "decoder_position_ids": canvas.start_B[:, None] + torch.arange(canvas.noised_BC.shape[1], device=model.device),
        "decoder_attention_mask": _masks(model.config, seqs.ids_BT.shape[1], canvas),
    }
    if not bool(conditioned_B.any()):
        return model(**inputs).logits
    with torch.no_grad():
        first_BCV = model(**inputs).logits
    return model(**inputs, self_conditioning_logits=first_BCV, self_conditioning_mask=conditioned_B).logits


def _masks(config: Any, width: int, canvas: Canvas) -> dict[str, Tensor]:
    """What a canvas sees of its row's keys and of itself, ``[B, 1, C, T + C]`` for each kind of layer (True: may look).

    In a sliding layer all of a canvas sees the same keys, the last ``window - 1`` before it: what the sampler's cache
    holds at that point (``DynamicSlidingWindowLayer``).
    """
    shape_BC = canvas.noised_BC.shape
    back_BT = canvas.start_B[:, None] - torch.arange(width, device=canvas.start_B.device)
    seen = {
        "full_attention": back_BT > 0,
        "sliding_attention": (back_BT > 0) & (back_BT < config.text_config.sliding_window),
    }
    itself_BC = torch.ones(shape_BC, dtype=torch.bool, device=back_BT.device)
    return {
        kind: torch.cat([seen_BT, itself_BC], 1)[:, None, None].expand(-1, 1, shape_BC[1], -1)
        for kind, seen_BT in seen.items()
    }


def _next_token_loss(model: Any, hidden_BTD: Tensor, seqs: Sequences) -> Tensor:
    """The encoder's mean cross-entropy of each row's tokens but the first; only those meet the vocabulary."""
    target_BT = seqs.valid_BT[:, 1:]
    cap = model.config.text_config.final_logit_softcapping
    logits_MV = cap * torch.tanh(model.lm_head(hidden_BTD[:, :-1][target_BT]).float() / cap)
    loss_M = F.cross_entropy(logits_MV, seqs.ids_BT[:, 1:][target_BT], reduction="none")
    loss_BT = torch.zeros(target_BT.shape, device=loss_M.device).masked_scatter(target_BT, loss_M)
    return loss_BT.sum(1) / target_BT.sum(1)


def _eos_ids(model: Any) -> list[int]:
    """The model's own EOS first, then the other end tokens of its generation config."""
    stated = (model.config.text_config.eos_token_id, model.generation_config.eos_token_id)
    lists = [ids if isinstance(ids, list) else [ids] for ids in stated]
    found = list(dict.fromkeys(i for ids in lists for i in ids if i is not None))
    if not found:
        raise DareError("config.json: text_config has no eos_token_id; add the id of the end token")
    return found


def _until_end(ids: list[int], eos_ids: list[int]) -> list[int]:
    ends = [place for place, token in enumerate(ids) if token in eos_ids]
    return ids[: ends[0] + 1] if ends else ids


def _model_class() -> Any:
    try:
        from transformers import DiffusionGemmaForBlockDiffusion
    except ImportError as error:
        raise DareError(
            'DiffusionGemma needs a newer transformers; install it: pip install "transformers>=5.24"'
        ) from error
    return DiffusionGemmaForBlockDiffusion
