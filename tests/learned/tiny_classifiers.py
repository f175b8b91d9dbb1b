"""Small classifiers with random weights, saved as a user's would be."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
)

from dare.models.tokenizer import tiny_tokenizer

CLASSES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForSequenceClassification),
    "qwen2": (Qwen2Config, Qwen2ForSequenceClassification),
    "bert": (BertConfig, BertForSequenceClassification),
    "qwen2_steps": (Qwen2Config, Qwen2ForTokenClassification),
    "bert_steps": (BertConfig, BertForTokenClassification),
}


def cross_encoder_tokenizer() -> PreTrainedTokenizerFast:
    """One token per letter, ``[CLS] first [SEP] second [SEP]``, no chat template."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(32, 127)), "\n"]
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP")}
    return PreTrainedTokenizerFast(tokenizer_object=core, **special)


def classifier(folder: Path, kind: str, labels: int = 1, **config: Any) -> str:
    """Save a classifier of a kind and its tokenizer; return the folder."""
    torch.manual_seed(0)
    tokenizer: PreTrainedTokenizerBase = cross_encoder_tokenizer() if kind.startswith("bert") else tiny_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "num_labels": labels,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.3,
    }
    make_config, make_model = CLASSES[kind]
    make_model(make_config(**{**sizes, **config})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]
