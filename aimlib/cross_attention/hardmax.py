r"""Hardmax over the keys of one query: posterior, information, misclassification.

Rows of untied indices are independent.  In units of :math:`\sqrt V` a row holds independent normals
of means :math:`z_b` and variance 1, of which the winner w is seen.  Given its value t all others
are below it, each by itself, so that everything is an integral over one number
(``cross_attention:winner``; at two keys ``cross_attention:hardmax``),

.. math:: P(w) = \int\varphi(t-z_w)\prod_{b\ne w}\Phi(t-z_b)\,dt .
"""

from __future__ import annotations

import functools
import math

import numpy as np

from aimlib._compile import njit
from aimlib._hardmax_information import cubic_series, one_sign_integral, stays_largest
from aimlib._normal import (
    INVERSE_SQRT_2PI,
    half_plane,
    log_normal_cdf,
    mills,
    normal_cdf,
    sign_information_of,
)
from aimlib._validation import FloatArray

_REACH = 9.0  # the logarithm of the density falls faster than -t^2/2 from its mode


# ---------------------------------------------------------------------------------------------
# Posterior
# ---------------------------------------------------------------------------------------------


@njit
def fill_row_shifts(winners: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """Fill E[h | winner] - z in units of sqrt(V), for rows z of shape (n, K)."""
    for k in range(z.shape[0]):
        row_shifts(winners[k], z[k], out[k])


@njit
def row_shifts(winner: int, z: np.ndarray, out: np.ndarray) -> float:
    """Fill E[h | winner] - z of one row and return P(winner), valid in any tail.

    The trapezoidal sum over t converges geometrically: the curvature of the logarithm of the
    density lies between 1 and the number of keys.
    """
    keys = z.size
    if keys == 2:
        gap = (z[winner] - z[1 - winner]) * math.sqrt(0.5)
        out[winner] = math.sqrt(0.5) * mills(gap)
        out[1 - winner] = -out[winner]
        return normal_cdf(gap)
    mode = _mode(winner, z)
    peak = _log_density(winner, z, mode)
    step = 0.7 / math.sqrt(keys)
    reach = math.ceil(_REACH / step)
    for b in range(keys):
        out[b] = 0.0
    mass = 0.0
    for i in range(-reach, reach + 1):
        t = mode + step * i
        weight = math.exp(_log_density(winner, z, t) - peak)
        mass += weight
        if weight > 0.0:
            for b in range(keys):
                if b != winner:
                    out[b] -= weight * mills(t + z[winner] - z[b])
    total = 0.0
    for b in range(keys):
        out[b] /= mass
        total += out[b]
    out[winner] = -total  # what all keys share is not seen
    return mass * step * math.exp(peak) * INVERSE_SQRT_2PI


@njit
def _log_density(winner: int, z: np.ndarray, t: float) -> float:
    """Of t = h_w - z_w together with all others being smaller, without 1/sqrt(2 pi)."""
    total = -0.5 * t * t
    for b in range(z.size):
        if b != winner:
            total += log_normal_cdf(t + z[winner] - z[b])
    return total


@njit
def _mode(winner: int, z: np.ndarray) -> float:
    """Newton's iteration from zero: the slope is convex and falls, so that it never overshoots."""
    t = 0.0
    for _ in range(100):
        slope, curvature = -t, 1.0
        for b in range(z.size):
            if b != winner:
                u = t + z[winner] - z[b]
                ratio = mills(u)
                slope += ratio
                curvature += max(ratio * (u + ratio), 0.0)
        t += slope / curvature
        if abs(slope) < 0.01 * curvature:
            break
    return t


# ---------------------------------------------------------------------------------------------
# Information of a row, over x = sqrt(V/Q).  The means z are Gaussian of variance k^2 = q/V.
# ---------------------------------------------------------------------------------------------

_NODES = 40  # of the Chebyshev series of c/x


@functools.cache
def row_series(keys: int) -> tuple[np.polynomial.Polynomial | np.polynomial.Chebyshev, float]:
    """c/x of one row as a series in x, and an estimate of its largest relative error.

    Two and three keys: by quadrature, to about 1e-12.  More: the cubic that value and slope at
    x = 1, the value at x = 0 and the entropy log K determine.
    """
    if keys > 3:
        at_one, slope = _start(keys)
        cubic, error = cubic_series(
            (boundary(keys) * one_sign_integral(), at_one), math.log(keys), slope
        )
        return np.polynomial.Polynomial(cubic), error
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    ratio = _pair_ratio if keys == 2 else _triple_ratio
    values = [ratio(0.5 * (1.0 + t)) for t in nodes]
    fit = np.polynomial.chebyshev.chebfit(nodes, values, _NODES - 1)
    return np.polynomial.Chebyshev(fit, domain=[0.0, 1.0]), 0.0


def _pair_ratio(x: float) -> float:
    """c/x of two keys: the average of :func:`sign_information` over w ~ N(0, k^2)."""
    q = math.sqrt((1.0 - x) * (1.0 + x))
    points = 0.1 * np.arange(-120.0, 121.0)
    scale = q / x
    if scale < 1.0:  # narrow: sum over w/k
        law = np.exp(-0.5 * points**2)
        return float(law @ sign_information_of(points * scale)) * 0.1 * INVERSE_SQRT_2PI / x
    law = np.exp(-0.5 * (points / scale) ** 2)
    return float(law @ sign_information_of(points)) * 0.1 * INVERSE_SQRT_2PI / q


def _triple_ratio(x: float) -> float:
    """c/x of three keys, over the plane of the differences of the means.

    Far from the origin the winner is uncertain only near the three half-lines where the two largest
    means are equal, and there the integrand is that of two keys.  The plane is six copies of the
    wedge between such a half-line and the next line of symmetry; what the wedge adds to two keys is
    localised near the origin.
    """
    k2 = (1.0 - x) * (1.0 + x) / (x * x)
    if k2 < 1.0:
        along, across, weight = half_plane(0.4, 22)  # of the means in units of k
        k = math.sqrt(k2)
        return float(weight @ _triple_informations(k * along, k * across)) / x
    across, along, weight, rest = _wedge()
    q = math.sqrt((1.0 - x) * (1.0 + x))
    inverse = x / q  # 1/k; divide by x analytically so that nothing is lost as x -> 0
    law = np.exp(-0.5 * (across**2 + along**2) * inverse**2)
    corner = float(np.sum(weight * rest * law)) * x / (q * q) / (2.0 * math.pi)
    b, mass = _interval_nodes(0.0, 10.0, 10)
    two = sign_information_of(b) * np.exp(-0.5 * (b * inverse) ** 2)
    inside = np.array([normal_cdf(-t * inverse / math.sqrt(3.0)) for t in b])
    line = float(mass @ (two * inside)) / q * INVERSE_SQRT_2PI
    return 6.0 * (corner + line)


@functools.cache
def _wedge() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Nodes across and along a half-line, their weights, and three keys less two on them."""
    b, mass = _interval_nodes(0.0, 10.0, 10)
    across, along, weight = [], [], []
    for t, w in zip(b, mass, strict=True):
        a, inner = _interval_nodes(t / math.sqrt(3.0), t / math.sqrt(3.0) + 12.0, 8)
        across.append(np.full(a.size, t))
        along.append(a)
        weight.append(w * inner)
    x, y = np.concatenate(across), np.concatenate(along)
    rest = _triple_informations(y, x) - sign_information_of(x)
    return x, y, np.concatenate(weight), rest


def _interval_nodes(low: float, high: float, panels: int) -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 0.5 * (high - low) / panels
    left = low + 2.0 * half * np.arange(panels)[:, None]
    return (left + half * (1.0 + nodes)).ravel(), np.tile(half * weights, panels)


@njit
def _triple_information(along: float, across: float) -> float:
    """Sum over winners of P |E[h | w] - z|^2 (``cross_attention:winner-information``).

    z = along (1, 1, -2)/sqrt(6) + across (1, -1, 0)/sqrt(2).
    """
    z, shift = np.empty(3), np.empty(3)
    z[0] = along / math.sqrt(6.0) + across / math.sqrt(2.0)
    z[1] = along / math.sqrt(6.0) - across / math.sqrt(2.0)
    z[2] = -2.0 * along / math.sqrt(6.0)
    total = 0.0
    for w in range(3):
        probability = row_shifts(w, z, shift)
        if probability > 0.0:
            total += probability * (shift[0] ** 2 + shift[1] ** 2 + shift[2] ** 2)
    return total


@njit
def _triple_informations(along: np.ndarray, across: np.ndarray) -> np.ndarray:
    """:func:`_triple_information` of every entry of two vectors."""
    out = np.empty(along.size)
    for i in range(along.size):
        out[i] = _triple_information(along[i], across[i])
    return out


_POINTS = np.linspace(-12.0, 12.0, 481)


def boundary(keys: int) -> float:
    r"""Rate at which a row is undecided, :math:`\sqrt2\binom K2\int\varphi^2\Phi^{K-2}`.

    The density at zero of the difference of two indices that exceed all others, times its spread.
    """
    from scipy import special

    density = np.exp(-_POINTS * _POINTS) * INVERSE_SQRT_2PI**2
    step = float(_POINTS[1] - _POINTS[0])
    rate = step * float(np.sum(density * special.ndtr(_POINTS) ** (keys - 2)))
    return math.sqrt(2.0) * 0.5 * keys * (keys - 1) * rate


def _start(keys: int) -> tuple[float, float]:
    """c and the slope of c/x where nothing is known: moments of K normals of which one wins.

    The slope is c - 2 ||Cov(h | w) - 1||^2, as for tied indices.
    """
    from scipy import special

    t = _POINTS
    law = keys * np.exp(-0.5 * t * t) * INVERSE_SQRT_2PI * special.ndtr(t) ** (keys - 1)
    law *= t[1] - t[0]
    loser = np.exp(-0.5 * t * t) * INVERSE_SQRT_2PI / special.ndtr(t)  # minus its mean given t
    first, other = float(law @ t), -float(law @ loser)
    own = float(law @ (t * t)) - first**2 - 1.0
    losers = float(law @ (1.0 - t * loser)) - other**2 - 1.0
    mixed = -float(law @ (t * loser)) - first * other
    between = float(law @ (loser * loser)) - other**2
    curvature = own**2 + (keys - 1) * (losers**2 + 2.0 * mixed**2 + (keys - 2) * between**2)
    start = first**2 + (keys - 1) * other**2
    return start, start - 2.0 * curvature


def misclassified(keys: int, x: float) -> float:
    """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
    if x < 1e-5:  # the difference below would cancel; two keys fix the constant
        return math.sqrt(2.0 / math.pi) * boundary(keys) * x
    return max(1.0 - keys * stays_largest(1.0, ((1.0, keys - 1),), x), 0.0)
