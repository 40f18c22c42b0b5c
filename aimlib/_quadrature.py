r"""One quadrature for every spectrum: the average of a quantity over the noisy matrix.

Each family of spectra gives a coordinate in which its support is a few intervals with square-root
ends.  With coordinate = centre + half cos(t) the integrand is smooth and periodic in t, and the
trapezoid in t converges geometrically, except where two parts of the support are about to merge;
there a split at the neck and the double-exponential rule, which tolerates any end, take over.  A
convergence test decides, never a guess.

A compiled function that takes another one as its argument cannot be cached, so an integer names the
family, and an array holds its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aimlib import _atoms, _rectangular, _wishart
from aimlib._compile import njit
from aimlib._validation import FloatArray

# What is averaged: one, the MMSE (over Delta but for atoms), the log-potential (not rectangular).
MASS, ERROR, POTENTIAL = 0, 1, 2

_WISHART, _ATOMS, _RECTANGULAR = 0, 1, 2
_TOLERANCE = 1e-11  # between n and 2n nodes; the error of the latter is about its square
_MOST_INTERVALS = 512
_ANGLES = np.linspace(0.0, math.pi, _MOST_INTERVALS + 1)
_COSINE, _SINE = np.cos(_ANGLES), np.sin(_ANGLES)  # at all nodes of the finest trapezoid
_DE_RANGE = 3.2
_DE_STEPS = 448
_DE_COARSEST = 16  # the stride of the first of five nested rules


@njit
def _has_converged(change: float, last_change: float, tolerance: float) -> bool:
    """Whether a doubling of the nodes has reached rounding.

    Geometric convergence squares the error at each doubling.  Where the last two changes show it,
    a change of a thousand tolerances means that the finer sum is right to rounding.
    """
    return change <= tolerance or (change <= 1e3 * tolerance and change <= last_change**1.6)


def _double_exponential_rule() -> tuple[FloatArray, FloatArray]:
    """Return distances from the nearer end of [0, 2] (signed by the end) and weights."""
    t = np.linspace(-_DE_RANGE, _DE_RANGE, 2 * _DE_STEPS + 1)
    argument = 0.5 * math.pi * np.sinh(t)
    # 1 - tanh(|a|) without cancellation, so that nodes next to an end keep their distance to it
    distance = 2.0 / (np.exp(2.0 * np.abs(argument)) + 1.0)
    weight = 0.5 * math.pi * np.cosh(t) / np.cosh(argument) ** 2 * (t[1] - t[0])
    return np.where(t < 0, -distance, distance), weight


_DE_DISTANCE, _DE_WEIGHT = _double_exponential_rule()


@njit
def _integrand(x: float, family: int, kind: int, p: np.ndarray) -> float:
    """Density times quantity times d(lambda)/dx; the first parameter is the noise."""
    if family == _WISHART:
        return _wishart.integrand(x, p[1], p[0], kind)
    if family == _RECTANGULAR:
        return _rectangular.integrand(x, p, kind)
    count = p.size // 2
    return _atoms.integrand(x, p[1 : count + 1], p[count + 1 :], p[0], kind)


@njit
def _trapezoid(
    left: float, right: float, family: int, kind: int, p: np.ndarray
) -> tuple[float, bool]:
    """Trapezoid in t, x = centre + half cos t, with nested doubling until converged.

    On an interval around zero the integrand is even, and half of the nodes are enough.
    """
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    total, previous, last_change, intervals = 0.0, math.inf, 1.0, 8
    even = left == -right
    # next to a gap about to open the rectangular spectra converge more slowly than geometrically
    tolerance = 0.1 * _TOLERANCE if family == _RECTANGULAR else _TOLERANCE
    while True:
        for j in range(1, intervals // 2 + 1 if even else intervals, 2 if intervals > 8 else 1):
            k = j * (_MOST_INTERVALS // intervals)
            value = _integrand(centre + half * _COSINE[k], family, kind, p) * _SINE[k]
            total += 2.0 * value if even and 2 * j < intervals else value
        current = total * math.pi / intervals * half
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if intervals > 8:
            if _has_converged(change, last_change, tolerance):
                return current, True
            # at this geometric rate it will not: do not try
            if intervals >= 64 and change ** (_MOST_INTERVALS / intervals) > 1e-8:
                return current, False
            last_change = change
        if intervals == _MOST_INTERVALS:
            return current, False
        previous = current
        intervals *= 2


@njit
def _double_exponential(left: float, right: float, family: int, kind: int, p: np.ndarray) -> float:
    half = 0.5 * (right - left)
    stride, total, previous, last_change = _DE_COARSEST, 0.0, math.inf, 1.0
    while True:
        for j in range(0, _DE_DISTANCE.size, stride):
            if stride < _DE_COARSEST and j % (2 * stride) == 0:
                continue  # counted by a coarser rule
            distance = _DE_DISTANCE[j]
            x = left - half * distance if distance < 0.0 else right - half * distance
            total += _integrand(x, family, kind, p) * _DE_WEIGHT[j]
        current = total * half * stride
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if stride == 1 or _has_converged(change, last_change, _TOLERANCE):
            return current
        previous, last_change = current, change
        stride //= 2


@njit
def _average(ends: np.ndarray, necks: np.ndarray, family: int, kind: int, p: np.ndarray) -> float:
    """Sum over the intervals of the support, split at the necks where the trapezoid fails."""
    total = 0.0
    for k in range(ends.size // 2):
        left, right = ends[2 * k], ends[2 * k + 1]
        value, converged = _trapezoid(left, right, family, kind, p)
        if not converged:
            value = 0.0
            for neck in necks:
                if left < neck < right:
                    value += _double_exponential(left, neck, family, kind, p)
                    left = neck
            value += _double_exponential(left, right, family, kind, p)
        total += value
    return total


@njit
def wishart_average(rho: float, noise: float, kind: int) -> float:
    """Average over the spectrum of ``WishartPrior``, of mass one."""
    p = np.empty(2)
    p[0], p[1] = noise, rho
    ends, necks = _wishart.intervals(rho, noise)
    return _average(ends, necks, _WISHART, kind, p)


@njit
def atoms_average(atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int) -> float:
    """Average over the spectrum of ``SpectralPrior``, of mass one."""
    p = np.empty(2 * atoms.size + 1)
    p[0], p[1 : atoms.size + 1], p[atoms.size + 1 :] = noise, atoms, weights
    ends, necks = _atoms.intervals(atoms, weights, noise)
    return _average(ends, necks, _ATOMS, kind, p)


@njit
def rectangular_average(rho: float, psi: float, noise: float, kind: int) -> float:
    """Average over the singular values of ``BilinearPrior``, of mass min(1, psi)."""
    p = _rectangular.parameters(rho, psi, noise)
    ends, necks = _rectangular.intervals(p)
    return _average(ends, necks, _RECTANGULAR, kind, p)


def integral(function: Callable[[FloatArray], Any], intervals: FloatArray) -> float:
    """Integrate a function of arrays with square-root ends over intervals of shape (k, 2)."""
    total = 0.0
    for left, right in intervals:
        centre, half = 0.5 * (left + right), 0.5 * (right - left)
        previous, count = math.inf, 64
        while count <= 4096:
            t = math.pi * np.arange(1, count) / count
            value = float(np.sum(function(centre + half * np.cos(t)) * np.sin(t)))
            value *= math.pi / count * half
            if abs(value - previous) <= 1e-14 * abs(value):
                break
            previous, count = value, 2 * count
        total += value
    return total


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def integrated_error(mmse: Callable[[Any], Any], noise: float, variance: float) -> float:
    """Integrate mmse(1/s) over s from 0 to 1/noise: an information without cancellation.

    Panels of s are geometric, and split until two halves agree with the whole.  The last one starts
    at zero, where the error is that of knowing nothing and analytic in s.
    """

    def panel(low: float, high: float, logarithmic: bool) -> float:
        if not logarithmic:
            s = high * 0.5 * (_NODES + 1.0)
            return 0.5 * high * float(_WEIGHTS @ mmse(1.0 / s))
        half = 0.5 * math.log(high / low)
        s = math.sqrt(low) * math.sqrt(high) * np.exp(half * _NODES)
        return half * float(_WEIGHTS @ (s * mmse(1.0 / s)))

    high, total = 1.0 / noise, 0.0
    while variance > 0.0 and mmse(1.0 / high) < (1.0 - 1e-3) * variance:
        low = 0.1 * high
        pending = [(low, high, panel(low, high, True), 0)]
        while pending:
            left, right, whole, depth = pending.pop()
            middle = math.sqrt(left) * math.sqrt(right)
            first, second = panel(left, middle, True), panel(middle, right, True)
            allowed = min(1e-10 * (total + first + second), 1e-9)
            if abs(first + second - whole) <= allowed or depth > 12:
                total += first + second
            else:
                pending += [(left, middle, first, depth + 1), (middle, right, second, depth + 1)]
        high = low
    return total + (panel(0.0, high, False) if variance > 0.0 else 0.0)
