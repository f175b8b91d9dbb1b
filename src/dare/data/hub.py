"""Rows of a ``datasets`` source: a dataset of the Hugging Face hub, or one saved to disk. No remote code is run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dare.data.row import Row, RowError
from dare.data.tables import digest
from dare.errors import DareError

if TYPE_CHECKING:
    import datasets

PREFIX = "hf:"
_SAVED = ("state.json", "dataset_dict.json")


@dataclass(frozen=True)
class HubTable:
    """A loaded dataset, or with ``task.stream`` one that arrives while it is read."""

    name: str
    data: "datasets.Dataset | datasets.IterableDataset"

    def count(self) -> int:
        """See ``Table``."""
        if not hasattr(self.data, "__len__"):
            raise DareError(f"{self.name}: a streamed dataset has no known length; slice it by plain row numbers")
        return len(self.data)

    def read(self, start: int = 0) -> Iterator[Row | RowError]:
        """See ``Table``."""
        for number, fields in enumerate(self.data.skip(start), start=start):
            yield Row(self.name, number, fields)

    def fingerprint(self) -> str:
        """Return the library's own fingerprint; of a streamed dataset, a hash of what is known before it is read."""
        known = getattr(self.data, "_fingerprint", None)
        return str(known) if known else digest(self.name, self.data.info.version, self.data.info.download_checksums)


def open_hub(name: str, split: str, stream: bool) -> HubTable:
    """Load ``hf:NAME[:CONFIG][:SPLIT]``; the split is the run's own, ``train`` or ``test``, where none is named."""
    import datasets

    path, config, part, *more = [*name.removeprefix(PREFIX).split(":"), "", ""]
    if not path or any(more):
        raise DareError(f"source {name!r}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    try:
        return HubTable(name, datasets.load_dataset(path, config or None, split=part or split, streaming=stream))
    except Exception as error:  # the library raises many kinds, of its own and of those below it
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DareError(
            f"source {name!r} cannot be loaded ({reason}); check hf:NAME:CONFIG:SPLIT (hf:NAME::SPLIT without a "
            "config) and the network, or save it elsewhere with Dataset.save_to_disk and give that folder"
        ) from error


def open_saved(folder: Path, split: str) -> HubTable:
    """Open a folder written by ``save_to_disk``: one dataset, or several by split."""
    import datasets

    if not any((folder / name).is_file() for name in _SAVED):
        state = "does not exist" if not folder.exists() else "is no dataset saved by save_to_disk"
        raise DareError(f"{folder} {state}; give a file, a glob such as {folder}/*.parquet, or such a folder")
    try:
        data = datasets.load_from_disk(folder)
    except (OSError, ValueError, KeyError) as error:
        raise DareError(f"{folder} cannot be opened ({str(error).splitlines()[0]}); save it again") from error
    if isinstance(data, datasets.DatasetDict):
        if split not in data:
            known = ", ".join(f"{folder}/{name}" for name in data)
            raise DareError(f"{folder} has no split {split!r}; name one of {known}")
        data = data[split]
    return HubTable(str(folder), data)
