r"""Hardmax with two tokens: the posterior of the indices, and the information in an output.

The output is the pair of signs of :math:`u = (h_{11}-h_{12},\,h_{22}-h_{12})`, Gaussian with
covariance :math:`V\begin{pmatrix}3&1\\1&3\end{pmatrix}`.  In units of :math:`\sqrt{3V}` this is a
standard bivariate normal of correlation 1/3, truncated to a quadrant (``hardmax:posterior``).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from aimlib._compile import njit
from aimlib._normal import (
    INVERSE_SQRT_2PI,
    half_plane,
    log_normal_cdf,
    mills,
    normal_cdf,
    normal_pdf,
    sign_information_of,
)
from aimlib._validation import FloatArray

_CORRELATION = 1.0 / 3.0
_CONDITIONAL = math.sqrt(1.0 - _CORRELATION**2)
_ARC_NODES, _ARC_WEIGHTS = np.polynomial.legendre.leggauss(12)
_TAIL_NODES, _TAIL_WEIGHTS = np.polynomial.legendre.leggauss(64)
_SAFE_PROBABILITY = 1e-2  # above it the quadrant probability keeps 13 digits


@njit
def _quadrant_probability(a: float, b: float, r: float) -> float:
    """P(x > -a, y > -b) at correlation r = +-1/3, by Plackett's integral over the correlation."""
    top = math.asin(r)
    total = 0.0
    for k in range(_ARC_NODES.size):
        theta = 0.5 * top * (1.0 + _ARC_NODES[k])
        sine, cosine = math.sin(theta), math.cos(theta)
        exponent = (a * a + b * b - 2.0 * a * b * sine) / (2.0 * cosine * cosine)
        total += _ARC_WEIGHTS[k] * math.exp(-exponent)
    return normal_cdf(a) * normal_cdf(b) + total * top / (4.0 * math.pi)


@njit
def _tail_mean(a: float, b: float, r: float) -> float:
    """E[x | x > -a, y > -b] by quadrature of the log-concave marginal of x, valid anywhere.

    The marginal is proportional to exp(-x^2/2) Phi((b + r x)/sqrt(1 - r^2)).  Minus its logarithm
    has a curvature between 1 and 9/8, which bounds the window that holds all of its mass.
    """
    left, right = _tail_window(-a, b, r)
    half = 0.5 * (right - left)
    peak = -math.inf
    for k in range(_TAIL_NODES.size):
        x = left + half * (1.0 + _TAIL_NODES[k])
        peak = max(peak, -0.5 * x * x + log_normal_cdf((b + r * x) / _CONDITIONAL))
    mass, moment = 0.0, 0.0
    for k in range(_TAIL_NODES.size):
        offset = half * (1.0 + _TAIL_NODES[k])
        x = left + offset
        logarithm = -0.5 * x * x + log_normal_cdf((b + r * x) / _CONDITIONAL)
        weight = _TAIL_WEIGHTS[k] * math.exp(logarithm - peak)
        mass += weight
        moment += weight * offset
    return left + moment / mass


@njit
def _tail_window(start: float, b: float, r: float) -> tuple[float, float]:
    """Interval right of ``start`` that holds the mass: the mode, where the slope changes sign."""
    slope = _tail_slope(start, b, r)
    if slope <= 0.0:
        return start, start + 90.0 / (-slope + math.sqrt(slope * slope + 90.0))
    low, high = start, start + slope + 1.0  # curvature >= 1: the mode is within the slope
    for _ in range(200):
        middle = 0.5 * (low + high)
        if high - low < 0.01:
            break
        if _tail_slope(middle, b, r) > 0.0:
            low = middle
        else:
            high = middle
    return max(start, low - 9.5), high + 9.5


@njit
def _tail_slope(x: float, b: float, r: float) -> float:
    """Derivative of -x^2/2 + log Phi((b + r x)/sqrt(1 - r^2))."""
    return -x + r / _CONDITIONAL * mills((b + r * x) / _CONDITIONAL)


@njit
def _quadrant_means(a: float, b: float, r: float) -> tuple[float, float]:
    """Means of a standard bivariate normal truncated to x > -a, y > -b."""
    probability = _quadrant_probability(a, b, r)
    if probability > _SAFE_PROBABILITY:
        first = normal_pdf(a) * normal_cdf((b - r * a) / _CONDITIONAL)
        second = normal_pdf(b) * normal_cdf((a - r * b) / _CONDITIONAL)
        return (first + r * second) / probability, (second + r * first) / probability
    return _tail_mean(a, b, r), _tail_mean(b, a, r)


@njit
def fill_pair_means(
    first: np.ndarray, second: np.ndarray, omega: np.ndarray, variance: float, out: np.ndarray
) -> None:
    """Fill E[h | y] for n sequences; first, second say whether a row picks its own token."""
    unit = math.sqrt(3.0 * variance)
    for k in range(omega.shape[0]):
        s = 1.0 if first[k] else -1.0
        t = 1.0 if second[k] else -1.0
        a = s * (omega[k, 0, 0] - omega[k, 0, 1]) / unit
        b = t * (omega[k, 1, 1] - omega[k, 0, 1]) / unit
        x, y = _quadrant_means(a, b, s * t * _CORRELATION)
        d1, d2 = s * x * unit, t * y * unit
        out[k, 0, 0] = omega[k, 0, 0] + (3.0 * d1 - d2) / 4.0
        out[k, 1, 1] = omega[k, 1, 1] + (3.0 * d2 - d1) / 4.0
        out[k, 0, 1] = omega[k, 0, 1] - (d1 + d2) / 4.0
        out[k, 1, 0] = out[k, 0, 1]


@njit
def pair_information(w1: float, w2: float) -> float:
    """Sum over the four outputs of P d^T C^-1 d, d the shift of the mean and C = [[1,r],[r,1]]."""
    total = 0.0
    for s in (-1.0, 1.0):
        for t in (-1.0, 1.0):
            r = s * t * _CORRELATION
            a, b = s * w1, t * w2
            probability = _quadrant_probability(a, b, r)
            first = normal_pdf(a) * normal_cdf((b - r * a) / _CONDITIONAL)
            second = normal_pdf(b) * normal_cdf((a - r * b) / _CONDITIONAL)
            if probability > _SAFE_PROBABILITY:
                # P d = C (first, second), so that P d^T C^-1 d = (f, s) C (f, s)/P
                total += (first * first + second * second + 2.0 * r * first * second) / probability
            elif first + second > 1e-18:  # what is skipped is lost in the rounding of the sum
                x, y = _tail_mean(a, b, r), _tail_mean(b, a, r)
                total += first * x + second * y
    return total


@njit
def pair_informations(w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    """:func:`pair_information` of every entry of two vectors."""
    out = np.empty(w1.size)
    for i in range(w1.size):
        out[i] = pair_information(w1[i], w2[i])
    return out


_GRID_STEP = 0.2
_GRID_REACH = 50


def _corner() -> FloatArray:
    """What the corner of the plane of means adds to two independent signs, on a grid."""
    n = _GRID_REACH
    i, j = np.indices((2 * n + 1, 2 * n + 1)).reshape(2, -1) - n
    part = j >= np.abs(i)  # unchanged by (w1, w2) -> (w2, w1) and -> (-w1, -w2)
    i, j = i[part], j[part]
    w1, w2 = _GRID_STEP * i, _GRID_STEP * j
    values = pair_informations(w1, w2) - sign_information_of(w1) - sign_information_of(w2)
    corner = np.empty((2 * n + 1, 2 * n + 1))
    for row, column in ((i, j), (j, i), (-i, -j), (-j, -i)):
        corner[n + row, n + column] = values
    return corner


def _information_near_the_start(k: float) -> float:
    """c for small k = sqrt(q/V): average over the mean of u, in units of its own covariance."""
    z1, z2, weight = half_plane(0.4, 22)
    values = pair_informations(k * z1, k * (_CORRELATION * z1 + _CONDITIONAL * z2))
    return float(weight @ values)


def _information_ratio(x: float, corner: FloatArray) -> float:
    """c/x at x = sqrt(V/Q), by trapezoidal sums that converge geometrically.

    The mean of u is Gaussian with covariance k^2 C, k^2 = q/V, in units of sqrt(3V).  Unless k is
    small, the outcome is uncertain only near the axes w1 = 0 and w2 = 0: there the integrand is
    that of a single sign, and what the corner where they cross adds is localised.
    """
    k2 = (1.0 - x * x) / (x * x)
    if k2 < 0.2:
        return _information_near_the_start(math.sqrt(k2)) / x
    r = _CORRELATION
    w = _GRID_STEP * np.arange(-_GRID_REACH, _GRID_REACH + 1)
    form = (w[:, None] ** 2 + w**2 - 2.0 * r * w[:, None] * w) / (1.0 - r * r)
    one = np.sum(np.exp(-0.5 * w**2 / k2) * sign_information_of(w)) * _GRID_STEP
    two = np.sum(np.exp(-0.5 * form / k2) * corner) * _GRID_STEP**2
    # 1/k = x/sqrt(1 - x^2): divide by x analytically so that nothing is lost as x -> 0
    inverse = 1.0 / math.sqrt(1.0 - x * x)
    line = 2.0 * one * INVERSE_SQRT_2PI * inverse
    return float(line + two * x * inverse * inverse / (2.0 * math.pi * _CONDITIONAL))


@functools.cache
def pair_series() -> np.polynomial.Chebyshev:
    """c/x as a Chebyshev series in x = sqrt(V/Q) on [0, 1], where it is analytic."""
    corner = _corner()
    nodes = np.cos(np.pi * (np.arange(40) + 0.5) / 40)
    values = [_information_ratio(0.5 * (1.0 + t), corner) for t in nodes]
    coefficients = np.polynomial.chebyshev.chebfit(nodes, values, 39)
    return np.polynomial.Chebyshev(coefficients, domain=[0.0, 1.0])
