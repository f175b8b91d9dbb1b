"""Libraries that only some rewards need, imported when such a reward grades its first answer."""

from importlib import import_module
from typing import Any

from dare.errors import DareError


def optional(name: str) -> Any:
    """Return the library called ``name``; ``DareError`` names the extra to install if it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise DareError(f"this reward needs {name}, which cannot be imported; pip install 'dare[rewards]'") from error
