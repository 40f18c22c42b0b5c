"""Sweeps described by a file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from aimlib.files import FileError, read_mapping
from aimlib.sweeps.cells import SweepError

__all__ = ["read_sweep_file"]

_REQUIRED = {"function", "grid", "seeds", "store"}
_KNOWN = _REQUIRED | {"executor", "jobs", "scheduler"}


def read_sweep_file(path: Path) -> dict[str, Any]:
    """Return the arguments of :func:`aimlib.sweep` from a TOML, YAML or JSON file.

    It holds ``function`` ("module:name"), ``grid``, ``seeds``, ``store`` (relative to it) and,
    optionally, ``executor``, ``jobs`` and ``scheduler``.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict
        To be passed on as ``sweep(**arguments)``.

    Raises
    ------
    SweepError
        If the file cannot be read, has other keys, or names a function that cannot be imported.
    """
    try:
        content = read_mapping(path)
    except FileError as error:
        raise SweepError(str(error)) from None
    unknown, absent = set(content) - _KNOWN, _REQUIRED - set(content)
    if unknown or absent:
        raise SweepError(
            f"{path} must have function, grid, seeds and store, and may have executor, jobs and "
            f"scheduler; unknown: {sorted(unknown)}, absent: {sorted(absent)}"
        )
    if not isinstance(content["store"], str):
        raise SweepError(f"store must be the name of a folder, got {content['store']!r}")
    function = _import(content["function"])
    return {**content, "function": function, "store": path.parent / content["store"]}


def _import(name: Any) -> Any:
    module, _, attribute = str(name).partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # what is imported can raise anything
        raise SweepError(
            f"function must be 'module:name' that can be imported, got {name!r} ({error})"
        ) from None
    if not callable(function):
        raise SweepError(f"function must be callable, got {name!r}")
    return function
