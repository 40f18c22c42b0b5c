"""Compiled kernels: numba's ``njit`` with an on-disk cache wherever one can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(function: Function) -> Function:
    """Compile a kernel without fastmath, cached on disk where a cache can be written.

    numba looks for a cache folder when it decorates and raises where it finds none (a read-only
    install without a home folder); such an install compiles in memory at each start instead.
    """
    try:
        return cast(Function, numba.njit(cache=True, error_model="numpy")(function))
    except RuntimeError:
        return cast(Function, numba.njit(error_model="numpy")(function))
