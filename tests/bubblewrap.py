import shutil

import pytest

MISSING = shutil.which("bwrap") is None
REASON = "NOTHING HERE WAS TESTED: bubblewrap is missing (apt install bubblewrap)"
needs_bwrap = pytest.mark.skipif(MISSING, reason=REASON)
