"""Compiled kernels: cached where a cache can be written, working where it cannot."""

from __future__ import annotations

import numba
import pytest

from aimlib import _compile


def add_one(x: float) -> float:
    return x + 1.0


def test_a_kernel_is_cached() -> None:
    kernel = _compile.njit(add_one)
    assert kernel(2.0) == 3.0
    assert kernel._cache.cache_path


def test_a_read_only_install_compiles_in_memory(monkeypatch) -> None:
    """numba raises at decoration where it finds no folder for its cache."""
    original = numba.njit

    def njit(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'add_one': no locator available")
        return original(*args, **options)

    monkeypatch.setattr(numba, "njit", njit)
    kernel = _compile.njit(add_one)
    assert kernel(2.0) == 3.0


def test_kernels_do_not_relax_arithmetic() -> None:
    """fastmath would break the tests for NaN and infinity on which the kernels rely."""
    kernel = _compile.njit(add_one)
    assert not kernel.targetoptions.get("fastmath")
    assert not kernel.targetoptions.get("parallel")


@pytest.mark.parametrize("name", ["priors", "channels"])
def test_all_kernels_go_through_the_one_decorator(name) -> None:
    """A bare numba.njit in a module would lose the fallback."""
    module = __import__(f"aimlib.{name}", fromlist=["x"])
    assert not hasattr(module, "numba")
