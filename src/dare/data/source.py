"""From a task's settings to tokenised rows, and from rows to padded sequences."""

from collections.abc import Sequence

from dare.data.config import Split, TaskConfig
from dare.data.encode import Limits, encode
from dare.data.examples import Converter, Kind, read_names
from dare.data.items import Item, Items
from dare.data.loading import Loading
from dare.data.tasks import TASKS
from dare.models.base import ModelSpec
from dare.models.tokenizer import PreTrainedTokenizerBase
from dare.types import Example, Sequences, pack


def load_examples(task: TaskConfig, split: Split, answers: bool = False) -> list[Example]:
    """Read or generate one split; a plain word names an embedded task.

    With ``answers`` every example has a worked answer and need not be gradable; without, it is the other way round.
    """
    names = [name for group, _ in task.mixture(split) for name in group]
    return read_names(names, task, split, _kind(task, answers))[0]


def load_items(
    task: TaskConfig,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    spec: ModelSpec,
    response_tokens: int,
    answers: bool = False,
) -> Items:
    """Tokenise one split; rows longer than ``task.max_prompt_tokens`` or the context are left out, cut or refused.

    With ``answers`` every row must have a worked answer, and it must fit into ``response_tokens`` with its end token.
    """
    return _loading(task, split, tokenizer, spec, response_tokens, answers).load()


def load_training_items(
    task: TaskConfig, tokenizer: PreTrainedTokenizerBase, spec: ModelSpec, response_tokens: int, answers: bool
) -> Items:
    """Tokenise the training split as ``load_items`` does; with ``task.stream`` the first window of each source."""
    loading = _loading(task, "train", tokenizer, spec, response_tokens, answers)
    return loading.stream() if task.stream else loading.load()


def answer_sequences(rows: Sequence[Item], spec: ModelSpec, padding: str, canvas: int, block_size: int) -> Sequences:
    """Join prompts and answers. An answer that ends does so in EOS; ``padding`` says how far EOS goes on as answer
    tokens: "none", "one_block" (to the end of the block of ``block_size``, at most of the canvas) or "to_length" (to
    ``canvas`` tokens).
    """
    eos = spec.eos_ids[0]
    rows_ids, prompt_lengths = [], []
    for item in rows:
        offset = len(item.prompt_ids) if spec.attention == "block_causal" else 0
        length = len(item.answer_ids) + item.ends
        if padding == "one_block" and item.ends:
            ended = -(-(offset + length) // block_size) * block_size - offset
            length = max(length, min(ended, canvas))
        elif padding == "to_length" and item.ends:
            length = canvas
        rows_ids.append(item.prompt_ids + item.answer_ids + [eos] * (length - len(item.answer_ids)))
        prompt_lengths.append(len(item.prompt_ids))
    return pack(rows_ids, prompt_lengths, spec.pad_id)


def _kind(task: TaskConfig, answers: bool) -> Kind[Example]:
    return Kind("task", TASKS, Converter(task, answers))


def _loading(
    task: TaskConfig,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    spec: ModelSpec,
    response_tokens: int,
    answers: bool,
) -> Loading[Example]:
    def make(number: int, example: Example) -> Item:
        return Item(number, example, *encode(tokenizer, example, spec, answers))

    limits = Limits.of(task, spec, response_tokens)
    return Loading(task, split, _kind(task, answers), make, tokenizer, spec, limits)
