"""A token for every open position: drawn, measured, and scored as the trainer will score it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dare.decoding.config import DecodingConfig
from dare.decoding.rules import RULES, Readout
from dare.diffusion.noise import key, uniform_at
from dare.errors import DareError
from dare.models.base import ModelSpec
from dare.types import Rows

_CHUNK = 256
"""Vocabulary entries that are summed before the draw picks one of them."""


@dataclass(frozen=True)
class Places(Rows):
    """The M open positions: canvas column, the row's noise key and step, how far the row's decoding has come (0 at the
    first step, 1 at the last), and the tokens already in the row, ``seen_MV``, where repetition counts.
    """

    column_M: Tensor
    key_M: Tensor
    step_M: Tensor
    progress_M: Tensor
    seen_MV: Tensor | None = None


def propose(
    logits_MV: Tensor, places: Places, decoding: DecodingConfig, spec: ModelSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Read one token per position from the model's logits, which are overwritten.

    Returns the tokens, the rule's confidence in them, and their log-probabilities (nats) under the model at temperature
    1 over the whole vocabulary, as ``score_view`` computes them.

    Raises ``DareError`` where a logit is NaN or infinite: a broken model must not look like a bad answer.
    """
    logp_MV = logits_MV.log_softmax(-1)
    if bool(logp_MV[:, 0].isnan().any()):  # one such logit makes the whole row NaN
        raise DareError("the model returned NaN or infinite logits while decoding; the weights are broken or diverged")
    logits_MV[:, spec.mask_id] = -torch.inf  # a committed mask would never be filled again
    if decoding.eos == "never":
        logits_MV[:, list(spec.eos_ids)] = -torch.inf
    penalised_MV = _penalise(logits_MV, places.seen_MV, decoding.repetition_penalty)
    sampling_MV = filtered(penalised_MV, decoding)
    if decoding.temperature > 0:
        token_M = sample(sampling_MV, uniform_at(key(places.key_M, "token", places.step_M), places.column_M))
    else:
        token_M = sampling_MV.argmax(-1)
    logp_M = logp_MV.gather(-1, token_M[:, None])[:, 0]
    return token_M, _confidence(logits_MV, sampling_MV, token_M, places, decoding, spec), logp_M


def filtered(logits_MV: Tensor, decoding: DecodingConfig) -> Tensor:
    """Divide by the temperature, then close what ``top_k``, ``top_p`` and ``min_p`` leave out."""
    if decoding.temperature not in (0.0, 1.0):
        logits_MV = logits_MV / decoding.temperature
    if decoding.top_k is not None and decoding.top_k < logits_MV.shape[1]:
        least_M1 = logits_MV.topk(decoding.top_k, dim=-1).values[:, -1:]
        logits_MV = logits_MV.masked_fill(logits_MV < least_M1, -torch.inf)
    if decoding.min_p is not None:
        # p < min_p * p_max in logarithms
        logits_MV = logits_MV.masked_fill(
            (logits_MV - logits_MV.amax(-1, keepdim=True)).exp() < decoding.min_p, -torch.inf
        )
    if decoding.top_p is not None:
        sorted_MV, order_MV = logits_MV.sort(dim=-1, descending=True, stable=True)
        p_MV = sorted_MV.softmax(-1)
        # the token that crosses the mark stays
        outside_MV = p_MV.cumsum(-1) - p_MV > decoding.top_p
        logits_MV = logits_MV.masked_fill(outside_MV.scatter(1, order_MV, outside_MV), -torch.inf)
    return logits_MV


def sample(scores_MV: Tensor, uniform_M: Tensor) -> Tensor:
    """Draw from softmax(scores) by inverting the cumulative distribution, with one uniform per position.

    Sums of ``_CHUNK`` entries are accumulated in float64, then the entries of the chosen chunk: exact to rounding for
    any vocabulary, without V random numbers and without a float64 copy of the logits.
    """
    weight_MV = scores_MV.softmax(-1)
    whole = weight_MV.shape[1] // _CHUNK * _CHUNK
    parts = weight_MV[:, :whole].unflatten(1, (-1, _CHUNK)).sum(-1)
    rest = weight_MV[:, whole:].sum(-1, keepdim=True)
    below_MC = torch.cat([parts, rest], 1).double().cumsum(-1)
    target_M1 = uniform_M[:, None] * below_MC[:, -1:]
    chunk_M1 = torch.searchsorted(below_MC, target_M1, right=True).clamp_max(below_MC.shape[1] - 1)
    before_M1 = below_MC.gather(1, (chunk_M1 - 1).clamp_min(0)).masked_fill(chunk_M1 == 0, 0.0)
    entry_MC = chunk_M1 * _CHUNK + torch.arange(_CHUNK, device=scores_MV.device)
    inside_MC = weight_MV.gather(1, entry_MC.clamp_max(weight_MV.shape[1] - 1)).double()
    inside_MC = inside_MC.masked_fill(entry_MC >= weight_MV.shape[1], 0.0)
    within_M1 = torch.searchsorted(inside_MC.cumsum(-1), target_M1 - before_M1, right=True)
    # rounding may step past the last possible entry
    last_M1 = (inside_MC > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    return (chunk_M1 * _CHUNK + torch.minimum(within_M1, last_M1))[:, 0]


def _penalise(logits_MV: Tensor, seen_MV: Tensor | None, penalty: float) -> Tensor:
    """Divide positive logits of tokens already there, multiply negative ones (CTRL, arXiv 1909.05858, equation 2)."""
    if seen_MV is None:
        return logits_MV
    weaker_MV = torch.where(logits_MV > 0, logits_MV / penalty, logits_MV * penalty)
    return torch.where(seen_MV, weaker_MV, logits_MV)


def _confidence(
    logits_MV: Tensor, sampling_MV: Tensor, token_M: Tensor, places: Places, decoding: DecodingConfig, spec: ModelSpec
) -> Tensor:
    end_M = torch.isin(token_M, torch.tensor(spec.eos_ids, device=token_M.device))
    if decoding.eos == "last":
        # the others compete as if no end token existed (LLaDA's confidence_eos_eot_inf)
        logits_MV, sampling_MV = logits_MV.clone(), sampling_MV.clone()
        logits_MV[:, list(spec.eos_ids)] = sampling_MV[:, list(spec.eos_ids)] = -torch.inf
    uniform_M = places.progress_M
    if decoding.rule == "random" or decoding.order_temperature > 0:
        uniform_M = uniform_at(key(places.key_M, "order", places.step_M), places.column_M)
    read = Readout(logits_MV, sampling_MV, token_M, places.column_M, uniform_M)
    confidence_M = RULES[decoding.rule](read)
    if decoding.order_temperature > 0:
        confidence_M = confidence_M - decoding.order_temperature * (-uniform_M.log()).log().to(confidence_M.dtype)
    if decoding.eos == "last":
        confidence_M = confidence_M.masked_fill(end_M, torch.finfo(confidence_M.dtype).min)
    if decoding.eos_discount is not None:
        discount_M = decoding.eos_discount + (1 - decoding.eos_discount) * places.progress_M
        confidence_M = torch.where(end_M, confidence_M * discount_M.to(confidence_M.dtype), confidence_M)
    return confidence_M
