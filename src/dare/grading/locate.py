"""Find the function that a reward's name means."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dare.errors import DareError

_FILE = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
_MODULE = re.compile(r"(?P<module>\w+(\.\w+)*)[.:](?P<function>\w+)")


def is_custom(name: str) -> bool:
    """Tell a function of the user's, ``package.module.function`` or ``path/to/file.py:function``, from a plain name."""
    return "." in name or "/" in name


@cache
def locate(where: str) -> Callable[..., Any]:
    """Import the function at ``module.function``, ``module:function`` or ``file.py:function``, once.

    ``DareError``: there is none. What the import itself raises is passed on.
    """
    if found := _FILE.fullmatch(where):
        module, source = _from_file(Path(found["file"])), found["file"]
    elif found := _MODULE.fullmatch(where):
        module, source = _from_name(where, found["module"]), f"module {found['module']}"
    else:
        raise DareError(f"reward {where!r}: write package.module.function or path/to/file.py:function")
    function = getattr(module, found["function"], None)
    if not callable(function):
        raise DareError(f"reward {where!r}: {source} has no function {found['function']!r}")
    return function


def _from_name(where: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        raise DareError(
            f"reward {where!r}: there is no module {error.name!r}; install it, start from its folder, or write "
            "path/to/file.py:function"
        ) from error


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise DareError(f"reward file {str(path)!r} does not exist; correct its path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # behind everything else, so that a file beside the reward cannot take the place of a library
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
