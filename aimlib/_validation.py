"""Checks at the public border: every message names the argument, its value and what is allowed."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def real(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a finite float inside the interval, or raise ``ValueError``."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        interval = _interval(low, high, open_low, open_high)
        raise ValueError(f"{name} must be a real number {interval}, got {value!r}") from None
    text_or_truth = isinstance(value, (str, bytes, bytearray)) or np.asarray(value).dtype == bool
    finite = math.isfinite(number) and not text_or_truth
    if not finite or not (
        (low < number or (low == number and not open_low))
        and (number < high or (number == high and not open_high))
    ):
        kind = "real" if finite else "finite real"
        interval = _interval(low, high, open_low, open_high)
        raise ValueError(f"{name} must be a {kind} number {interval}, got {value!r}")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite positive float, or raise ``ValueError``."""
    return real(name, value, low=0.0, open_low=True)


def integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int from ``low`` (to ``high``), or raise ``ValueError``."""
    allowed = f"an integer of at least {low}" + ("" if high is None else f" and at most {high}")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number


def reals(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> FloatArray:
    """Return ``value`` as a finite float64 array with all entries inside the interval."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        interval = _interval(low, high, open_low, open_high)
        raise ValueError(f"{name} must hold real numbers {interval}, got {value!r}") from None
    bad = ~np.isfinite(array) | (array < low) | (array > high)
    if open_low:
        bad |= array == low
    if open_high:
        bad |= array == high
    if bad.any():
        first = array[bad].flat[0] if array.ndim else float(array)
        interval = _interval(low, high, open_low, open_high)
        raise ValueError(f"{name} must hold finite real numbers {interval}, got {first!r}")
    return array


def symmetric_matrix(name: str, value: Any, *, tolerance: float = 1e-9) -> FloatArray:
    """Return ``value`` as a finite symmetric (d, d) float64 array, or raise ``ValueError``."""
    matrix = reals(name, value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(
            f"{name} must be a square matrix of shape (d, d), got shape {matrix.shape}"
        )
    asymmetry = float(np.max(np.abs(matrix - matrix.T)))
    if asymmetry > tolerance * max(1.0, float(np.max(np.abs(matrix)))):
        raise ValueError(
            f"{name} must be symmetric, "
            f"got a matrix whose largest |{name} - {name}.T| is {asymmetry:.3g}"
        )
    return matrix


def covariance(name: str, value: Any, size: int) -> FloatArray:
    """Return ``value`` as a positive definite (size, size) array, or raise ``ValueError``."""
    matrix = symmetric_matrix(name, value)
    if matrix.shape != (size, size) or np.linalg.eigvalsh(matrix)[0] <= 0.0:
        raise ValueError(
            f"{name} must be a positive definite matrix of shape {(size, size)}, got {value!r}"
        )
    if np.diag(matrix).min() < 1e-100 or np.diag(matrix).max() > 1e100:
        raise ValueError(
            f"{name} must have diagonal entries between 1e-100 and 1e100, got {value!r}"
        )
    return matrix


def symmetrised(matrix: FloatArray) -> FloatArray:
    """Return the symmetric part of a square matrix."""
    return np.asarray(0.5 * (matrix + matrix.T))


def generator(name: str, value: Any) -> np.random.Generator:
    """Return a ``Generator`` from a Generator, a SeedSequence or a non-negative integer seed."""
    if isinstance(value, np.random.Generator):
        return value
    if isinstance(value, np.random.SeedSequence):
        return np.random.default_rng(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_)):
        seed = int(value)
        if seed >= 0:
            return np.random.default_rng(seed)
    raise ValueError(
        f"{name} must be a non-negative integer, a SeedSequence or a numpy Generator, got {value!r}"
    )


def store(instance: Any, **values: Any) -> None:
    """Set fields of a frozen data class to what the checks have returned."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _interval(low: float, high: float, open_low: bool, open_high: bool) -> str:
    left = "(" if open_low or low == -math.inf else "["
    right = ")" if open_high or high == math.inf else "]"
    return f"in {left}{low:g}, {high:g}{right}"
