import pytest
import torch

from dare.errors import DareError
from dare.models import transformer
from dare.models.probe import check_visibility
from toy import toy_model


@pytest.mark.parametrize(("attention", "block"), [("full", None), ("block_causal", 1), ("block_causal", 4)])
def test_sound_models_pass(attention: str, block: int | None) -> None:
    assert check_visibility(toy_model(9, attention, block))


def test_a_model_that_stays_causal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    causal = torch.ones(64, 64, dtype=torch.bool).tril()
    monkeypatch.setattr(transformer, "full_mask", lambda valid: causal[: valid.shape[1], : valid.shape[1]][None, None])
    with pytest.raises(DareError, match="token 7 has no effect on state 0"):
        check_visibility(toy_model(9))


def test_a_block_model_that_sees_the_future_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "block_causal_mask", lambda valid, size: None)
    with pytest.raises(DareError, match="token 7 has an effect on state 3"):
        check_visibility(toy_model(9, "block_causal", 4))
