"""Names that have moved: for one release they lead to their new place, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def moved_names(package: str, names: dict[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that maps old names to new ones of the same package."""

    def moved(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warnings.warn(
            f"{package}.{name} is now {package}.{names[name]}", DeprecationWarning, stacklevel=2
        )
        return getattr(sys.modules[package], names[name])

    return moved
