"""What the reference policy says of a response, kept on disk: nothing that training changes enters it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from dare.algorithms.units import VIEW
from dare.engines.local import LocalEngine
from dare.types import Sequences, Views


class ReferenceScores:
    """Estimates of the evidence lower bound, one per row and view, read from ``folder`` where they are known.

    The file is named by the reference's weights and an entry by the tokens, masks and weights it is for. So entries
    survive any change of settings and serve every run that points here. A batch is read or scored as a whole: a
    resumed run sees the bits that an uninterrupted one saw.
    """

    def __init__(self, engine: LocalEngine, folder: Path):
        self.engine = engine
        self.path = folder / f"reference_{_fingerprint(engine)}.jsonl"
        self.known = dict(_entries(self.path))

    def __call__(self, seqs: Sequences, views: Views) -> Tensor:
        """Return ``[B, K]``, in nats."""
        names = _names(seqs, views)
        if not self.known.keys() >= set(names):
            logp_BKT = self.engine.score(seqs, views, reference=True).logp_BKT
            self._keep(names, VIEW.reduce(logp_BKT.double(), views).tolist())
        return torch.tensor([self.known[name] for name in names], dtype=torch.float64, device=seqs.ids_BT.device)

    def _keep(self, names: list[str], rows: list[list[float]]) -> None:
        self.known.update(zip(names, rows, strict=True))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            # the line break leads, so that a killed process's half line stays alone
            file.writelines(f"\n{json.dumps(entry)}" for entry in zip(names, rows, strict=True))


def _entries(path: Path) -> Iterator[tuple[str, list[float]]]:
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line.endswith("]]"):
            yield tuple(json.loads(line))


def _fingerprint(engine: LocalEngine) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for weight in engine.reference.parameters():
        if not weight.requires_grad:
            digest.update(_bytes(weight))
    return digest.hexdigest()


def _names(seqs: Sequences, views: Views) -> list[str]:
    """Name each row by what is scored, its padding left out."""
    names = []
    for row, length in enumerate(seqs.lengths_B.tolist()):
        digest = hashlib.blake2b(digest_size=16)
        for part in (seqs.ids_BT, views.masked_BKT, views.weight_BKT):
            digest.update(_bytes(part[row, ..., :length]))
        names.append(digest.hexdigest())
    return names


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
