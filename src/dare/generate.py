"""Decode one answer at the terminal, step by step if asked."""

import torch
from pydantic import Field
from rich.console import Console

from dare.config import Config
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.diffusion.noise import key
from dare.errors import DareError
from dare.evaluation.evaluate import trace
from dare.evaluation.trace import decoded, trace_text
from dare.models.chat import encode_prompt, response_texts
from dare.train.run import load_model
from dare.types import Example


class GenerateConfig(Config):
    """Settings of ``dare generate``."""

    seed: int = Field(0, ge=0)
    device: str = "cpu"
    decoding: DecodingConfig = DecodingConfig()


def generate(model: str, prompt: str, config: GenerateConfig, show_steps: bool) -> None:
    """Print the answer to ``prompt`` on stdout, and with ``show_steps`` every intermediate state before it."""
    checkpoint = load_model(model, config.seed)
    denoiser, tokenizer = checkpoint.model.to(config.device), checkpoint.tokenizer
    assert tokenizer is not None
    example = Example(({"role": "user", "content": prompt},), {})
    ids = encode_prompt(tokenizer, example.prompt)
    room = denoiser.spec.context - config.decoding.max_new_tokens
    if len(ids) > room:
        raise DareError(f"prompt of {len(ids)} tokens leaves no room in the context; at most {room} fit")
    index_B = torch.zeros(1, dtype=torch.int64, device=config.device)
    rollouts = denoise(denoiser, [ids], config.decoding, key(config.seed, "generate", index_B), index_B)
    (text,) = response_texts(tokenizer, rollouts)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    if show_steps:
        record = trace("", example, rollouts, 0, text, None, tokenizer)
        for step, line in enumerate(trace_text(decoded(record)), start=1):
            out.print(f"{step:4d}  {line}")
    out.print(text)
