"""The same log-probabilities by the Triton kernels of the cut-cross-entropy library, for GPUs (``engine.cut``)."""

import importlib.util

from torch import Tensor

from dare.diffusion.vocabulary import Reading
from dare.errors import DareError


def check_cut(device: str) -> None:
    """Raise ``DareError`` where the kernels cannot run."""
    if not device.startswith("cuda"):
        raise DareError(f"engine.cut=true needs a GPU; engine.device is {device!r}, set it to cuda or leave cut out")
    if importlib.util.find_spec("cut_cross_entropy") is None:
        raise DareError("engine.cut=true needs a library: pip install 'cut-cross-entropy>=25.1' triton")


def cut_logp(hidden_MD: Tensor, weight_VD: Tensor, ids_M: Tensor, temperature: float, *, impl: str = "cce") -> Reading:
    """Read ``ids_M`` as ``linear_logp`` does, without entropies; its gradient skips nothing (arXiv 2411.09009).

    ``impl`` "cce" the kernels, "torch_compile" the library's own comparison, which runs anywhere.
    """
    from cut_cross_entropy import linear_cross_entropy

    scaled_MD = hidden_MD if temperature == 1 else hidden_MD / temperature
    return Reading(-linear_cross_entropy(scaled_MD, weight_VD, ids_M, reduction="none", filter_eps=None, impl=impl))
