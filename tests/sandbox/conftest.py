import pytest

from bubblewrap import MISSING, REASON
from dare.sandbox.base import Sandbox, open_sandbox


@pytest.fixture(scope="session")
def bwrap() -> Sandbox:
    if MISSING:
        pytest.skip(REASON)
    return open_sandbox("bwrap")
