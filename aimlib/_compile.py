"""Compiled kernels: numba's ``njit``, at the first call, with a cache that follows the sources.

Compiled code contains the kernels it calls and the constants it reads, wherever they stand, while
numba renews a cached kernel only when the kernel's own file changes.  So the cache lies in a folder
named after a hash of every source file of the package: any edit starts an empty one.

numba itself is imported by the first call: importing it takes longer than all the rest.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

KEY_VARIABLE = "AIMLIB_KERNEL_KEY"
_PACKAGE = Path(__file__).resolve().parent
_DAY = 86400.0
_KEPT = 3  # caches of other sources, beside those used within a day
_settings = threading.Lock()  # numba reads the folder from a global when it decorates


class Kernel:
    """A function that is compiled when it is first called, from Python or from another kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The compiled function: without fastmath, on which tests for NaN and infinity rely."""
        numba = _numba()
        folder = cache_folder()
        if folder is None:
            return numba.njit(error_model="numpy")(self.function)
        with _settings:
            before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
            try:
                return numba.njit(cache=True, error_model="numpy")(self.function)
            finally:
                numba.config.CACHE_DIR = before

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a global that a kernel refers to."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)


def _numba() -> Any:
    return importlib.import_module("numba")


def njit(function: Function) -> Function:
    """Decorate a kernel; see :class:`Kernel`."""
    return cast(Function, Kernel(function))


def source_key() -> str:
    """Return the name of the cache of these sources, or what ``AIMLIB_KERNEL_KEY`` pins it to.

    Empty where there are no files to hash, and then nothing is kept.
    """
    pinned = os.environ.get(KEY_VARIABLE, "")
    if pinned:
        if not re.fullmatch(r"\w[\w.-]*", pinned):
            raise ValueError(
                f"{KEY_VARIABLE} must be made of letters, digits, '_', '-' and '.', got {pinned!r}"
            )
        return pinned
    sources = sorted(_PACKAGE.rglob("*.py"))
    if not sources:  # a package in an archive
        return ""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


# At import, when the sources are those that this process runs: not at the first call, by when
# somebody may have edited them.
_KEY = source_key()


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels, made if need be; None where none can be written."""
    for root in _roots() if _KEY else ():
        folder = root / "kernels" / _KEY
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)  # the sign that it is in use
        except OSError:
            continue
        prune(folder)
        return folder
    return None


def _roots() -> Iterator[Path]:
    """Where a cache may be, best first: as numba has it, but one folder for each copy of aimlib."""
    numba = _numba()
    copy = f"aimlib-{hashlib.sha256(str(_PACKAGE).encode()).hexdigest()[:16]}"
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR) / copy
        return
    yield _PACKAGE / "__pycache__"
    yield Path(numba.misc.appdirs.AppDirs(appname="numba", appauthor=False).user_cache_dir) / copy


def prune(folder: Path) -> None:
    """Remove the caches of other sources but those used last, or within a day.

    A process that runs on removed sources makes its folder anew when it next saves a kernel.
    """
    others = []
    for other in folder.parent.iterdir():
        try:
            others.append((other.stat().st_mtime, other))
        except OSError:  # another process has pruned it
            continue
    others = sorted(item for item in others if item[1] != folder)[:-_KEPT]
    for used, other in others:
        if time.time() - used > _DAY:
            shutil.rmtree(other, ignore_errors=True)
