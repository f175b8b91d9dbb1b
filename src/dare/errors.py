"""The one exception a user is meant to read: value, expectation, fix, in one line."""

import difflib
from collections.abc import Iterable


class DareError(Exception):
    """A mistake the user can mend; the command line prints its message alone and exits with ``status``."""

    label, status = "error", 2


def nearest(value: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest known name, else the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
