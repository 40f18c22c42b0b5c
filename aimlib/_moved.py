"""Names that have moved: for one release they lead to their new place, with a warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def moved_names(package: str, names: dict[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that maps old names to the paths of new ones."""

    def moved(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path = names[name]
        warnings.warn(f"{package}.{name} is now {path}", DeprecationWarning, stacklevel=2)
        module, _, attribute = path.rpartition(".")
        return getattr(importlib.import_module(module), attribute)

    return moved
