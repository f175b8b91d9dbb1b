import shutil

import pytest

from dare.sandbox.base import Sandbox, open_sandbox


@pytest.fixture(scope="session")
def bwrap() -> Sandbox:
    if shutil.which("bwrap") is None:
        pytest.skip("NOTHING HERE WAS TESTED: bubblewrap is missing (apt install bubblewrap)")
    return open_sandbox("bwrap")
