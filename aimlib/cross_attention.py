r"""Cross-attention: untied, rectangular weights, with the tokens of two different sequences.

Beyond the source paper.  Queries :math:`x_a\in\mathbb R^d`, :math:`a\le T`, and keys
:math:`z_b\in\mathbb R^{d'}`, :math:`b\le T'`, are independent, so that the indices
(``cross_attention:indices``)

.. math:: h_{ab} = \frac{x_a^\top S z_b}{\sqrt d},\qquad S = \frac{Q K^\top}{\sqrt{r d'}},

with Gaussian :math:`Q\in\mathbb R^{d\times r}` and :math:`K\in\mathbb R^{d'\times r}`, are
:math:`TT'` independent Gaussians of variance :math:`\mathrm{Tr}(SS^\top)/d \to 1`.  The ratios are
:math:`\rho = r/d` and :math:`\psi = d'/d`, and :math:`n=\alpha d^2` sequences are seen.  All data
act as one noisy matrix :math:`R = S+\sqrt\Delta\,Z`, with independent entries of Z of variance 1/d,
and (``cross_attention:saddle``)

.. math:: \hat q = \frac1\Delta = \frac{\alpha c}{V},\qquad V=\mathrm{mmse}(\Delta) .

The noisy singular values are described by one complex number P (``cross_attention:curve``),

.. math:: \lambda^2 = \frac{(1+N)(\psi+N)}{P},\qquad N = \frac{\rho P}{\psi\rho-P}+\Delta P .

Inside the support a real :math:`\lambda` has one pair of complex roots P and two real ones beyond
:math:`\psi\rho`.  The coefficients of the quartic give everything that is needed of the pair as
products of the real ones, without cancellation: the optimal denoiser is
:math:`D = \lambda k/(k+\Delta)` with :math:`k = \psi\rho^2/|\psi\rho-P|^2`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._normal import log_normal_cdf
from aimlib._validation import FloatArray
from aimlib.amp import AMPResult, Problem, iterate, shrink, shrink_slopes
from aimlib.channels import (
    Informative,
    _like,
    _softmax_error_pair,
    _uncertainty,
    _variances,
)
from aimlib.priors import (
    _DE_COARSEST,
    _DE_DISTANCE,
    _DE_WEIGHT,
    _MOST_INTERVALS,
    Outside,
    _has_converged,
    _map_noise,
    _noises,
    _outside,
)

__all__ = [
    "BilinearPrior",
    "CrossAttentionModel",
    "CrossDataset",
    "CrossHardmaxChannel",
    "CrossLinearChannel",
    "CrossSoftmaxChannel",
    "cross_attention_amp",
    "cross_attention_indices",
    "cross_weak_recovery_threshold",
]

_BLOCK_BYTES = 1 << 20  # tokens of one block: small enough for the cache


# ---------------------------------------------------------------------------------------------
# The noisy singular values.  e = P - psi rho is the coordinate of the real roots: in it
#   x(e) = lambda^2 = Delta^2 (e - r1)(e - r2)(e + s1)(e + s2)/((psi rho + e) e^2),
# where r > 0 and -s < 0 are the zeros of 1 + N (first pair) and of psi + N (second).
# ---------------------------------------------------------------------------------------------


@njit
def _zeros(rho: float, psi: float, noise: float) -> np.ndarray:
    """Return r1, r2, s1, s2 and minus the negative zeros in P, t1, t2."""
    pole = psi * rho
    out = np.empty(6)
    for i in range(2):
        top = 1.0 if i == 0 else psi
        linear = top + noise * pole - rho
        root = math.sqrt(linear * linear + 4.0 * noise * rho * pole)
        if linear > 0.0:
            out[i] = 2.0 * rho * pole / (linear + root)
        else:
            out[i] = (root - linear) / (2.0 * noise)
        out[2 + i] = rho * pole / (noise * out[i])
        out[4 + i] = top * pole / (noise * (pole + out[i]))
    return out


@njit
def _log_square(e: float, zeros: np.ndarray, pole: float, noise: float) -> tuple[float, float]:
    """Return log x and its derivative in log e, for e > 0 with x > 0."""
    r1, r2, s1, s2 = zeros[0], zeros[1], zeros[2], zeros[3]
    value = math.log(abs(e - r1)) + math.log(abs(e - r2)) + 2.0 * math.log(noise)
    value += math.log(e + s1) + math.log(e + s2) - math.log(pole + e) - 2.0 * math.log(e)
    slope = 1.0 / (e - r1) + 1.0 / (e - r2) + 1.0 / (e + s1) + 1.0 / (e + s2)
    return value, (slope - 1.0 / (pole + e)) * e - 2.0


@njit
def _real_root(
    log_x: float, low: float, high: float, zeros: np.ndarray, pole: float, noise: float, sign: float
) -> float:
    """Solve log x(e) = log_x for log e in (low, high), sign telling whether x increases."""
    position = 0.5 * (low + high)
    for _ in range(200):
        value, slope = _log_square(math.exp(position), zeros, pole, noise)
        gap = value - log_x
        if gap * sign > 0.0:
            high = position
        else:
            low = position
        following = position - gap / slope if slope * sign > 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - position) <= 1e-16 * (1.0 + abs(position)):
            return following
        if following == low or following == high:
            return following
        position = following
    return position


@njit
def _inside(
    lam: float, zeros: np.ndarray, rho: float, psi: float, noise: float
) -> tuple[float, float, float]:
    """Return k, |P| and (Im N)^2 at a singular value inside the support."""
    pole = psi * rho
    near, far = min(zeros[0], zeros[1]), max(zeros[0], zeros[1])
    e3, e4 = near, far
    if lam > 0.0:
        log_x = 2.0 * math.log(lam)
        high = math.log(near)
        low = min(high, math.log(rho) + 0.5 * (math.log(pole) - log_x)) - 1.0
        while _log_square(math.exp(low), zeros, pole, noise)[0] < log_x:
            low -= 2.0
        e3 = math.exp(_real_root(log_x, low, high, zeros, pole, noise, -1.0))
        low = math.log(far)
        high = max(low, log_x - 2.0 * math.log(noise)) + 1.0
        while _log_square(math.exp(high), zeros, pole, noise)[0] < log_x:
            high += 2.0
        e4 = math.exp(_real_root(log_x, low, high, zeros, pole, noise, 1.0))
    k = noise * e3 * (noise * e4) / (psi * rho * rho)
    size = math.sqrt(psi / (pole + e3)) * math.sqrt(psi / (pole + e4)) * math.sqrt(psi) * rho
    size /= noise
    u, c = 0.5 * lam * lam / (k + noise), 0.5 * (1.0 - psi)
    product = lam * lam * size  # |1 + N||psi + N|
    difference = abs(u - c) * abs(u + c)
    numerator = (product - difference) * (product + difference)
    if numerator <= 0.0:
        return k, size, 0.0
    return k, size, numerator / (u * u + c * c + math.sqrt(4.0 * (u * c) ** 2 + product**2))


@njit
def _integrand(
    lam: float, zeros: np.ndarray, rho: float, psi: float, noise: float, kind: int
) -> float:
    """Density times, for kind 0: one, 1: MMSE/Delta, 2: half the log-potential."""
    if lam == 0.0:
        return 0.0
    k, size, square = _inside(lam, zeros, rho, psi, noise)
    if square <= 0.0:
        return 0.0
    density = 2.0 / math.pi * math.sqrt(square) / lam
    if kind == 0:
        return density
    if kind == 1:  # mu D (lambda - D)/Delta
        share = lam / (k + noise)
        return density * share * share * k
    pole = psi * rho
    real = 0.5 * (lam * lam / (k + noise) - 1.0 - psi)
    # Re P - psi rho: two exact expressions, each ill-conditioned somewhere
    radius = psi * rho * rho / k
    shift = 0.5 * (size * size - pole * pole - radius) / pole
    error = (size * size + pole * pole + radius) / pole
    linear = 1.0 + psi + 2.0 * noise * pole - 2.0 * rho
    ratio = lam * lam / (k + noise)
    if (ratio + abs(linear)) < error * abs(noise - k):
        shift = 0.5 * (ratio - linear) / (noise - k)
    c = 0.5 * (1.0 - psi)
    u = 0.5 * ratio
    potential = 2.0 * real - noise * (pole + shift) - 0.5 * rho * math.log(k * psi)
    potential -= 0.5 * (1.0 + psi) * math.log(size / psi)
    if psi != 1.0:
        first, second = (u + c) ** 2 + square, (u - c) ** 2 + square
        potential += 0.25 * (psi - 1.0) * (math.log(first / second) + 2.0 * math.log(psi))
    return 0.5 * density * (potential + abs(1.0 - psi) * math.log(lam))


@njit
def _trapezoid(
    left: float, right: float, zeros: np.ndarray, rho: float, psi: float, noise: float, kind: int
) -> tuple[float, bool]:
    """Trapezoid in t, lambda = centre + half cos t, with nested doubling until converged.

    A support that starts at zero is that of the even function on (-right, right).
    """
    share = 1.0
    if left == 0.0:
        left, share = -right, 0.5
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    intervals = 8
    total = 0.0
    for j in range(1, intervals):
        t = math.pi * j / intervals
        lam = abs(centre + half * math.cos(t))
        total += _integrand(lam, zeros, rho, psi, noise, kind) * math.sin(t)
    previous, last_change = share * total * math.pi / intervals * half, 1.0
    while intervals < _MOST_INTERVALS:
        intervals *= 2
        for j in range(1, intervals, 2):
            t = math.pi * j / intervals
            lam = abs(centre + half * math.cos(t))
            total += _integrand(lam, zeros, rho, psi, noise, kind) * math.sin(t)
        current = share * total * math.pi / intervals * half
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if _has_converged(change, last_change):
            return current, True
        if intervals >= 64 and change ** (_MOST_INTERVALS / intervals) > 1e-8:
            return current, False
        previous, last_change = current, change
    return previous, False


# this rule and the one above are those of the Wishart prior around another integrand: a compiled
# function that takes another as its argument cannot be cached
@njit
def _double_exponential(
    left: float, right: float, zeros: np.ndarray, rho: float, psi: float, noise: float, kind: int
) -> float:
    half = 0.5 * (right - left)
    stride, total, previous, last_change = _DE_COARSEST, 0.0, math.inf, 1.0
    while True:
        for j in range(0, _DE_DISTANCE.size, stride):
            if stride < _DE_COARSEST and j % (2 * stride) == 0:
                continue  # counted by a coarser rule
            distance = _DE_DISTANCE[j]
            lam = left - half * distance if distance < 0.0 else right - half * distance
            total += _integrand(lam, zeros, rho, psi, noise, kind) * _DE_WEIGHT[j]
        current = total * half * stride
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if stride == 1 or _has_converged(change, last_change):
            return current
        previous, last_change = current, change
        stride //= 2


@njit
def _average(
    edges: np.ndarray,
    necks: np.ndarray,
    zeros: np.ndarray,
    rho: float,
    psi: float,
    noise: float,
    kind: int,
) -> float:
    """Integrate over the support, split at the necks where it is about to come apart."""
    total = 0.0
    for i in range(edges.shape[0]):
        left, right = edges[i, 0], edges[i, 1]
        value, converged = _trapezoid(left, right, zeros, rho, psi, noise, kind)
        if not converged:
            value = 0.0
            for neck in necks:
                if left < neck < right:
                    value += _double_exponential(left, neck, zeros, rho, psi, noise, kind)
                    left = neck
            value += _double_exponential(left, right, zeros, rho, psi, noise, kind)
        total += value
    return total


# ---------------------------------------------------------------------------------------------
# Edges: real critical points of x(P).  One lies in (0, psi rho), the upper edge; one between the
# two negative zeros, the lower edge (0 when psi = 1); a pair beyond psi rho bounds a gap, or is
# complex and marks a neck.
# ---------------------------------------------------------------------------------------------


@njit
def _square(p: float, zeros: np.ndarray, pole: float, noise: float) -> float:
    """x at a real P below psi rho."""
    top: float = (pole + zeros[0] - p) * (pole + zeros[1] - p) * (p + zeros[4]) * (p + zeros[5])
    return noise * noise * top / (p * (pole - p) ** 2)


@njit
def _square_slope(p: float, zeros: np.ndarray, pole: float) -> float:
    """Derivative of log|x| in P."""
    total: float = 1.0 / (p - pole - zeros[0]) + 1.0 / (p - pole - zeros[1])
    total += 1.0 / (p + zeros[4]) + 1.0 / (p + zeros[5])
    return total - 1.0 / p + 2.0 / (pole - p)


@njit
def _upper_edge(zeros: np.ndarray, pole: float) -> float:
    """Bisect the minimum of x on (0, psi rho) in the logit of P/(psi rho)."""
    low, high = -700.0, 36.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle == low or middle == high:
            break
        if _square_slope(pole / (1.0 + math.exp(-middle)), zeros, pole) < 0.0:
            low = middle
        else:
            high = middle
    return pole / (1.0 + math.exp(-low))


@njit
def _lower_edge(zeros: np.ndarray, pole: float) -> float:
    """Bisect the maximum of x between the negative zeros."""
    low: float = -max(zeros[4], zeros[5])
    high: float = -min(zeros[4], zeros[5])
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle == low or middle == high:
            break
        if _square_slope(middle, zeros, pole) > 0.0:
            low = middle
        else:
            high = middle
    return low


def _polish(e: float, zeros: FloatArray, pole: float) -> float:
    """Newton's iteration for a critical point in log e, kept only while it improves."""

    def slope(position: float) -> float:
        return float(_log_square(math.exp(position), zeros, pole, 1.0)[1])

    position = math.log(e)
    for _ in range(4):
        step = 1e-5
        derivative = (slope(position + step) - slope(position - step)) / (2.0 * step)
        if derivative == 0.0:
            break
        following = position - slope(position) / derivative
        if not abs(slope(following)) < abs(slope(position)):
            break
        position = following
    return math.exp(position)


@dataclass(frozen=True)
class _Spectrum:
    """Support of the singular values of R, with P at its edges."""

    edges: FloatArray  # (k, 2)
    points: FloatArray  # P at each edge, (k, 2)
    necks: FloatArray
    zeros: FloatArray


def _spectrum(rho: float, psi: float, noise: float) -> _Spectrum:
    pole, zeros = psi * rho, _zeros(rho, psi, noise)
    top = float(_upper_edge(zeros, pole))
    bottom = -zeros[4] if zeros[4] == zeros[5] else _lower_edge(zeros, pole)
    low = math.sqrt(max(_square(bottom, zeros, pole, noise), 0.0)) if psi != 1.0 else 0.0
    high = math.sqrt(_square(top, zeros, pole, noise))
    edges, points = [low, high], [bottom, top]
    pair, necks = _inner_points(zeros, pole), []
    if pair is not None:
        e = [_polish(p.real, zeros, pole) if p.imag == 0.0 else p.real for p in pair]
        lam = [math.exp(0.5 * _log_square(v, zeros, pole, noise)[0]) for v in e]
        if pair[0].imag == 0.0 and low < min(lam) < max(lam) < high:
            order = np.argsort(lam)
            edges[1:1] = [lam[i] for i in order]
            points[1:1] = [pole + e[i] for i in order]
        elif low < lam[0] < high:
            necks = [lam[0]]
    return _Spectrum(
        edges=np.array(edges).reshape(-1, 2),
        points=np.array(points).reshape(-1, 2),
        necks=np.array(necks, dtype=np.float64),
        zeros=zeros,
    )


def _inner_points(zeros: FloatArray, pole: float) -> list[complex] | None:
    """The pair of critical points with Re e > 0 that is not the one between r1 and r2."""
    scale = math.sqrt(zeros[0] * zeros[1])
    r1, r2, s1, s2 = zeros[:4] / scale
    p = pole / scale
    numerator = np.poly([r1, r2, -s1, -s2])
    slope = np.polyder(numerator)
    condition = np.polysub(np.polymul(slope, [1.0, p, 0.0]), np.polymul(numerator, [3.0, 2.0 * p]))
    roots = [complex(root) * scale for root in np.roots(condition)]
    positive = sorted((root for root in roots if root.real > 0.0), key=lambda root: root.real)
    if len(positive) != 3:
        return None
    low, high = scale * min(r1, r2) * (1 - 1e-9), scale * max(r1, r2) * (1 + 1e-9)
    between = min(
        range(3),
        key=lambda i: (
            abs(positive[i].imag) > 1e-6 * abs(positive[i]),
            max(low - positive[i].real, positive[i].real - high, 0.0),
        ),
    )
    del positive[between]
    first, second = positive
    if abs(first.imag) > 1e-7 * abs(first):
        return positive if abs(first - second.conjugate()) < 1e-6 * abs(first) else None
    return [complex(first.real), complex(second.real)]


@njit
def _outside_point(
    lam: float,
    edges: np.ndarray,
    points: np.ndarray,
    zeros: np.ndarray,
    psi: float,
    pole: float,
    noise: float,
) -> float:
    """The physical real P outside the support, on its interval where x is monotone."""
    if lam >= edges[-1, 1]:
        low, high = -700.0, math.log(points[-1, 1] / (pole - points[-1, 1]))
        for _ in range(200):
            middle = 0.5 * (low + high)
            if middle == low or middle == high:
                break
            if _square(pole / (1.0 + math.exp(-middle)), zeros, pole, noise) > lam * lam:
                low = middle
            else:
                high = middle
        return pole / (1.0 + math.exp(-low))
    if lam <= edges[0, 0]:
        inner: float = -zeros[4] if psi > 1.0 else -zeros[5]
        outer: float = points[0, 0]
        for _ in range(200):
            middle = 0.5 * (inner + outer)
            if middle == inner or middle == outer:
                break
            if _square(middle, zeros, pole, noise) < lam * lam:
                inner = middle
            else:
                outer = middle
        return inner
    low = math.log(points[0, 1] - pole)
    high = math.log(points[1, 0] - pole)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle == low or middle == high:
            break
        if _log_square(math.exp(middle), zeros, pole, noise)[0] < 2.0 * math.log(lam):
            low = middle
        else:
            high = middle
    return pole + math.exp(low)


@njit
def _velocity(p: float, lam: float, rho: float, psi: float, noise: float) -> float:
    """s = a + b = (1 + psi + 2 N)/lambda at a real P."""
    if lam == 0.0:
        return 0.0
    return (1.0 + psi + 2.0 * (rho * p / (psi * rho - p) + noise * p)) / lam


@njit
def _shrink_values(
    lam: np.ndarray,
    edges: np.ndarray,
    points: np.ndarray,
    zeros: np.ndarray,
    rho: float,
    psi: float,
    noise: float,
    hold: bool,
    out: np.ndarray,
) -> None:
    pole = psi * rho
    for i in range(lam.size):
        inside = False
        for j in range(edges.shape[0]):
            inside = inside or edges[j, 0] < lam[i] < edges[j, 1]
        if inside:
            k, _, _ = _inside(lam[i], zeros, rho, psi, noise)
            out[i] = lam[i] * (k / (k + noise))
        elif hold:
            best = 0
            for j in range(edges.size):
                if abs(edges.flat[j] - lam[i]) < abs(edges.flat[best] - lam[i]):
                    best = j
            speed = _velocity(points.flat[best], edges.flat[best], rho, psi, noise)
            out[i] = lam[i] - noise * speed
        elif lam[i] == 0.0:
            out[i] = 0.0
        else:
            p = _outside_point(lam[i], edges, points, zeros, psi, pole, noise)
            out[i] = lam[i] - noise * _velocity(p, lam[i], rho, psi, noise)
            if lam[i] < edges[0, 0]:  # the resolvents diverge at zero, where d and d' differ
                out[i] = max(out[i], 0.0)


# ---------------------------------------------------------------------------------------------
# The prior
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BilinearPrior:
    r"""Untied weights :math:`S = QK^\top/\sqrt{rd'}` of shape (d, d'), Gaussian Q and K.

    Everything is about :math:`R = S+\sqrt\Delta\,Z` with :math:`Z_{ij}` of variance 1/d, and is
    counted per d, the dimension of the queries: :math:`\mathrm{Tr}(SS^\top)/d\to1`.

    Parameters
    ----------
    width_ratio : float
        :math:`\rho = r/d > 0`.
    aspect_ratio : float
        :math:`\psi = d'/d > 0`, the dimension of the keys over that of the queries.

    Raises
    ------
    ValueError
        If a ratio is not a finite positive number.

    Examples
    --------
    >>> prior = BilinearPrior(0.5)
    >>> prior.degrees_of_freedom
    0.75
    >>> round(prior.mmse(1.0), 8)
    0.43904074
    """

    width_ratio: float
    aspect_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name in ("width_ratio", "aspect_ratio"):
            value = check.real(name, getattr(self, name), low=0.0, open_low=True)
            object.__setattr__(self, name, value)

    @property
    def coordinate_noise(self) -> float:
        """1: every entry of the noise has variance 1/d."""
        return 1.0

    @property
    def mean(self) -> float:
        """Mean of every entry of S: 0."""
        return 0.0

    @property
    def second_moment(self) -> float:
        """Q = lim Tr(S S^T)/d = 1."""
        return 1.0

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, the zero matrix: 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        r"""Parameters of S over :math:`d^2` (``cross_attention:degrees``).

        :math:`\kappa=\rho(1+\psi-\rho)` below full rank, :math:`\psi` from there on.
        """
        rho, psi = self.width_ratio, self.aspect_ratio
        return rho * (1.0 + psi - rho) if rho < min(1.0, psi) else psi

    def _spectrum(self, noise: Any) -> _Spectrum:
        delta = check.real("noise", noise, low=0.0, open_low=True)
        return _spectrum(self.width_ratio, self.aspect_ratio, delta)

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the singular values of R, shape (k, 2), k = 1 or 2."""
        return self._spectrum(noise).edges.copy()

    def density(self, x: ArrayLike, noise: float) -> Any:
        """Return the limiting density of the singular values of R at ``x``.

        Normalised to one: there are min(d, d') of them.  At x = 0 the value is the limit from the
        right.
        """
        points = check.reals("x", x)
        spectrum = self._spectrum(noise)
        rho, psi = self.width_ratio, self.aspect_ratio
        values = np.zeros(points.size)
        tiny = 1e-9 * spectrum.edges[-1, 1]
        for i, point in enumerate(points.ravel()):
            lam = max(float(point), tiny) if point >= 0.0 else -1.0
            if np.any((spectrum.edges[:, 0] < lam) & (lam < spectrum.edges[:, 1])):
                values[i] = _integrand(lam, spectrum.zeros, rho, psi, float(noise), 0)
        return _like(values.reshape(points.shape) / min(1.0, psi))

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    def mmse(self, noise: ArrayLike) -> Any:
        r"""Return the minimal :math:`E\|S-\hat S\|_F^2/d` given R (``cross_attention:mmse``).

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.
        """
        return self._averages(noise, 1, lambda value, delta: value * delta)

    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...
    def information(self, noise: ArrayLike) -> Any:
        r"""Return the mutual information of S and R over d^2 (``cross_attention:information``).

        Its derivative in :math:`1/\Delta` is mmse/2.
        """
        psi = self.aspect_ratio
        pure = 0.25 * psi * (psi * math.log(psi) - 1.0)
        if psi != 1.0:
            pure -= 0.25 * (1.0 - psi) ** 2 * math.log(abs(1.0 - psi))
        return self._averages(
            noise, 2, lambda value, delta: value - 0.5 * psi * math.log(delta) - pure
        )

    def _averages(
        self, noise: ArrayLike, kind: int, finish: Callable[[float, float], float]
    ) -> Any:
        rho, psi = self.width_ratio, self.aspect_ratio

        def fill(noises: FloatArray, out: FloatArray) -> None:
            for i, delta in enumerate(noises):
                s = _spectrum(rho, psi, float(delta))
                value = _average(s.edges, s.necks, s.zeros, rho, psi, float(delta), kind)
                out[i] = finish(value, float(delta))

        return _map_noise(_noises(noise), fill)

    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        r"""Return the denoised singular values (``cross_attention:denoiser``).

        Parameters
        ----------
        eigenvalues : array
            Singular values of R, any shape, none negative.
        noise : float
            :math:`\Delta > 0`.
        outside : {"resolvent", "edge"}
            Outside the limiting support follow the resolvents (below it not to negative values),
            or hold the shift :math:`(\lambda-D)/\Delta` at its value at the nearest edge.
        """
        lam = check.reals("eigenvalues", eigenvalues, low=0.0)
        s = self._spectrum(noise)
        out = np.empty(lam.size)
        _shrink_values(
            lam.ravel(),
            s.edges,
            s.points,
            s.zeros,
            self.width_ratio,
            self.aspect_ratio,
            float(noise),
            _outside(outside),
            out,
        )
        return out.reshape(lam.shape)

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate of S given R, shape (d, d').

        Raises
        ------
        ValueError
            If ``matrix`` is not a finite matrix, d' is not aspect_ratio * d up to rounding, or
            ``noise`` is not positive.
        """
        observed = check.reals("matrix", matrix)
        if observed.ndim != 2 or 0 in observed.shape:
            raise ValueError(f"matrix must have shape (d, d'), got shape {observed.shape}")
        if observed.shape != self.shape(observed.shape[0]):
            raise ValueError(
                f"matrix must have shape {self.shape(observed.shape[0])} "
                f"for aspect_ratio {self.aspect_ratio!r}, got shape {observed.shape}"
            )
        left, values, right = np.linalg.svd(observed, full_matrices=False)
        return np.asarray((left * self.shrink(values, noise, outside)) @ right)

    def shape(self, dimension: int) -> tuple[int, int]:
        """Shape (d, d') of S, with d' the integer nearest to aspect_ratio * dimension."""
        d = check.integer("dimension", dimension, low=1)
        return d, max(round(self.aspect_ratio * d), 1)

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d'); the width is the integer nearest to width_ratio * d."""
        d, keys = self.shape(dimension)
        width = round(self.width_ratio * d)
        if width < 1:
            raise ValueError(
                f"dimension must make width_ratio * dimension round to at least 1, "
                f"got dimension {d} with width_ratio {self.width_ratio!r}"
            )
        generator = check.generator("rng", rng)
        q = generator.standard_normal((d, width))
        k = generator.standard_normal((keys, width))
        return np.asarray(q @ k.T / math.sqrt(width * keys))


# ---------------------------------------------------------------------------------------------
# Channels of T x T' independent indices, all of variance V given the data
# ---------------------------------------------------------------------------------------------


class CrossChannel(Informative, Protocol):
    """What message passing asks of a channel of rectangular indices."""

    @property
    def queries(self) -> int: ...
    @property
    def keys(self) -> int: ...

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray: ...
    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray: ...


class _Rectangular:
    """Checks shared by the channels."""

    queries: int
    keys: int

    def _indices(self, name: str, value: ArrayLike) -> FloatArray:
        array = check.reals(name, value)
        shape = (self.queries, self.keys)
        if array.ndim < 2 or array.shape[-2:] != shape:
            raise ValueError(
                f"{name} must have shape (..., {shape[0]}, {shape[1]}), got shape {array.shape}"
            )
        return array

    def _posterior(
        self, y: ArrayLike, omega: ArrayLike, variance: float
    ) -> tuple[FloatArray, FloatArray, float]:
        outputs, centre = self._indices("y", y), self._indices("omega", omega)
        if outputs.shape != centre.shape:
            raise ValueError(f"omega must have the shape of y, {outputs.shape}, got {centre.shape}")
        return outputs, centre, check.real("variance", variance, low=0.0, open_low=True)


@dataclass(frozen=True)
class CrossLinearChannel(_Rectangular):
    r"""The indices with noise, :math:`y_{ab}=h_{ab}+\sqrt\tau\,\xi_{ab}`.

    Parameters
    ----------
    queries, keys : int
        T and T', at least 1.
    noise : float
        Variance :math:`\tau\ge0`.

    Examples
    --------
    >>> CrossLinearChannel(2, 3, noise=1.0).information(0.0, 1.0)
    3.0
    """

    queries: int = 1
    keys: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=1)
        object.__setattr__(self, "noise", check.real("noise", self.noise, low=0.0))

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T'); a positive noise needs ``rng``."""
        h = self._indices("indices", indices)
        if self.noise == 0.0:
            return h.copy()
        if rng is None:
            raise ValueError(
                f"rng must be a numpy Generator when noise is {self.noise!r}, got None"
            )
        return np.asarray(h + math.sqrt(self.noise) * rng.standard_normal(h.shape))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] by Gaussian conditioning."""
        outputs, centre, v = self._posterior(y, omega, variance)
        return np.asarray(centre + v / (v + self.noise) * (outputs - centre))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = TT'V/(V+\tau)` (``cross_attention:information-linear``)."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        v = _variances(variance, second_moment)
        share = v / (v + self.noise) if self.noise > 0.0 else 1.0 + 0.0 * v
        return _like(self.queries * self.keys * share)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac{TT'}2\log(2\pi e(V+\tau))`."""
        v = _variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * (v + self.noise))
        return _like(0.5 * self.queries * self.keys * entropy)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`TT'V`, the error on the output without its noise."""
        return _like(self.queries * self.keys * _variances(variance, second_moment))


@dataclass(frozen=True)
class CrossSoftmaxChannel(_Rectangular):
    r"""Row-wise softmax over the keys, :math:`y_{ab}=e^{\beta h_{ab}}/\sum_{b'}e^{\beta h_{ab'}}`.

    Each row of h is known up to its own shift: nothing ties the rows together.

    Parameters
    ----------
    queries : int
        T, at least 1.
    keys : int
        T', at least 2.
    inverse_temperature : float
        :math:`\beta > 0`.

    Examples
    --------
    >>> CrossSoftmaxChannel(2, 3).information(0.5, 1.0)
    4.0
    """

    queries: int = 2
    keys: int = 2
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=2)
        beta = check.real("inverse_temperature", self.inverse_temperature, low=0.0, open_low=True)
        object.__setattr__(self, "inverse_temperature", beta)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T'), rows summing to one; ``rng`` is not used."""
        h = self._indices("indices", indices)
        with np.errstate(over="ignore"):  # to -inf, of weight zero
            weights = np.exp(self.inverse_temperature * (h - h.max(axis=-1, keepdims=True)))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y]: least squares for the shift of each row (``cross_attention:softmax``).

        Raises
        ------
        ValueError
            If an output is not positive: use a smaller ``inverse_temperature``.
        """
        outputs, centre, _ = self._posterior(y, omega, variance)
        smallest = float(outputs.min()) if outputs.size else 1.0
        if smallest <= 0.0:
            raise ValueError(f"y must hold positive softmax outputs, got {smallest!r}")
        base = np.log(outputs) / self.inverse_temperature
        return np.asarray(base + (centre - base).mean(axis=-1, keepdims=True))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T(T'-1)`, whatever the overlap and :math:`\beta`."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q: a constant."""
        v = _variances(variance, second_moment)
        return _like(self.queries * (self.keys - 1.0) + 0.0 * v)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac c2\log(2\pi eV)` up to a constant of the coordinates of y."""
        v = _variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * v)
        return _like(0.5 * self.queries * (self.keys - 1.0) * entropy)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|y-E[y\mid\mathrm{data}]\|_F^2` on a new pair of sequences.

        Two keys: by quadrature.  More: by quasi-Monte Carlo with a fixed seed, to about 1e-3.
        """
        v = _variances(variance, second_moment)
        values = [self._row_error(float(x), second_moment) for x in v.ravel()]
        return _like(self.queries * np.array(values).reshape(v.shape))

    def _row_error(self, variance: float, second_moment: float) -> float:
        if self.keys == 2:  # the difference of two indices has variance 2 Q, where tied ones have 3
            share = 2.0 / 3.0
            scaled = (share * variance, share * second_moment)
            return 0.5 * _softmax_error_pair(*scaled, self.inverse_temperature)
        from scipy.stats import qmc

        law = qmc.MultivariateNormalQMC(np.zeros(2 * self.keys), rng=np.random.default_rng(0))
        mean, spread = np.split(law.random(2**13), 2, axis=1)
        row = CrossSoftmaxChannel(1, self.keys, self.inverse_temperature)
        centre = math.sqrt(second_moment - 0.5 * variance) * mean
        y = [
            row.output((centre + sign * math.sqrt(0.5 * variance) * spread)[:, None])
            for sign in (1.0, -1.0)
        ]
        return float(0.5 * np.mean(np.sum((y[0] - y[1]) ** 2, axis=(1, 2))))


@dataclass(frozen=True)
class CrossHardmaxChannel(_Rectangular):
    r"""One-hot of the larger of two keys in each row.

    Only the sign of :math:`u_a=h_{a1}-h_{a2}` is seen, and rows are independent.

    Parameters
    ----------
    queries : int
        T, at least 1.
    keys : int
        T' = 2: with more keys the information has no one-dimensional form and is not implemented.

    Examples
    --------
    >>> round(CrossHardmaxChannel(2).information(0.0, 1.0), 10)  # T 2/pi
    1.2732395447
    """

    queries: int = 2
    keys: int = 2

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=2, high=2)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, 2), one-hot in every row; ``rng`` is not used."""
        h = self._indices("indices", indices)
        first = h[..., 0] >= h[..., 1]
        return np.stack([first, ~first], axis=-1).astype(np.float64)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] from the half-line of each difference (``cross_attention:hardmax``)."""
        outputs, centre, v = self._posterior(y, omega, variance)
        sign = outputs[..., 0] - outputs[..., 1]
        if not np.all(np.abs(sign) == 1.0):
            raise ValueError("y must be one-hot in every row")
        gap = sign * (centre[..., 0] - centre[..., 1]) / math.sqrt(2.0 * v)
        shift = sign * math.sqrt(0.5 * v) * _mills(gap)
        return np.asarray(centre + np.stack([shift, -shift], axis=-1))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T\,E\,\varphi(w)^2/(\Phi(w)\Phi(-w))`, w of variance q/V."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(self.queries * self._row_average(x, _sign_information))

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return T times the mean entropy of a sign, in nats."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(self.queries * self._row_average(x, _sign_entropy))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows, :math:`\arcsin(\sqrt{V/Q})/\pi`."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(np.arcsin(np.minimum(x, 1.0)) / math.pi)

    @staticmethod
    def _row_average(x: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Average over w ~ N(0, q/V), x = sqrt(V/Q): in z where it is narrow, in w where wide."""
        out = np.empty(x.size)
        wide = function(_POINTS)
        for i, value in enumerate(np.minimum(x.ravel(), 1.0)):
            q = math.sqrt((1.0 - value) * (1.0 + value))  # sqrt(q/Q); w has scale q/x
            if q < value:
                law = np.exp(-0.5 * _POINTS**2)
                out[i] = law @ function(_POINTS * q / value) * _STEP / math.sqrt(2.0 * math.pi)
            else:
                law = np.exp(-0.5 * (_POINTS * value / q) ** 2)
                out[i] = law @ wide * _STEP / math.sqrt(2.0 * math.pi) * value / q
        return out.reshape(x.shape)


_STEP = 0.1
_POINTS: FloatArray = _STEP * np.arange(-120.0, 121.0)


@njit
def _log_cdf(w: np.ndarray, out: np.ndarray) -> None:
    for i in range(w.size):
        out[i] = log_normal_cdf(w[i])


def _log_cdfs(w: FloatArray) -> FloatArray:
    out = np.empty(w.size)
    _log_cdf(np.ascontiguousarray(w).ravel(), out)
    return out.reshape(w.shape)


def _mills(w: FloatArray) -> FloatArray:
    r"""Return :math:`\varphi(w)/\Phi(w)`."""
    return np.asarray(np.exp(-0.5 * w * w - 0.5 * math.log(2.0 * math.pi) - _log_cdfs(w)))


def _sign_information(w: FloatArray) -> FloatArray:
    return np.asarray(_mills(w) * _mills(-w))


def _sign_entropy(w: FloatArray) -> FloatArray:
    plus, minus = _log_cdfs(w), _log_cdfs(-w)
    return np.asarray(-np.exp(plus) * plus - np.exp(minus) * minus)


# ---------------------------------------------------------------------------------------------
# The model
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CrossDataset:
    """Pairs of sequences, their outputs and, where it is known, the teacher.

    Attributes
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    outputs : array, shape (n, T, T')
    teacher : array, shape (d, d'), or None

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.
    """

    queries: FloatArray
    keys: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        queries, keys = _sequences("queries", self.queries), _sequences("keys", self.keys)
        outputs = check.reals("outputs", self.outputs)
        if keys.shape[0] != queries.shape[0]:
            raise ValueError(f"keys must have {queries.shape[0]} sequences, got {keys.shape[0]}")
        shape = (queries.shape[0], queries.shape[1], keys.shape[1])
        if outputs.shape != shape:
            raise ValueError(f"outputs must have shape {shape}, got shape {outputs.shape}")
        for name, value in (("queries", queries), ("keys", keys), ("outputs", outputs)):
            object.__setattr__(self, name, value)
        if self.teacher is not None:
            teacher = check.reals("teacher", self.teacher)
            if teacher.shape != (queries.shape[2], keys.shape[2]):
                raise ValueError(
                    f"teacher must have shape {(queries.shape[2], keys.shape[2])}, "
                    f"got shape {teacher.shape}"
                )
            object.__setattr__(self, "teacher", teacher)

    @property
    def dimension(self) -> int:
        """Dimension d of the queries."""
        return int(self.queries.shape[2])

    @property
    def sample_complexity(self) -> float:
        """alpha = n/d^2."""
        return float(self.queries.shape[0] / self.queries.shape[2] ** 2)


def _sequences(name: str, value: Any) -> FloatArray:
    tokens = check.reals(name, value)
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(f"{name} must have shape (n, tokens, dimension), got {tokens.shape}")
    return tokens


@dataclass(frozen=True)
class CrossAttentionModel:
    """One layer of cross-attention with a random teacher, seen through an output channel.

    Parameters
    ----------
    dimension : int
        Dimension d of the queries; that of the keys is aspect_ratio * d.
    prior : BilinearPrior
    channel : cross-attention channel

    Examples
    --------
    >>> model = CrossAttentionModel(20, BilinearPrior(0.5, 2.0), CrossSoftmaxChannel(2, 3))
    >>> data = model.sample(0.1, seed=1)
    >>> data.queries.shape, data.keys.shape, data.outputs.shape, data.teacher.shape
    ((40, 2, 20), (40, 3, 40), (40, 2, 3), (20, 40))
    """

    dimension: int
    prior: BilinearPrior
    channel: CrossChannel

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        _check_model(self.prior, self.channel)

    def sample(
        self, sample_complexity: float, seed: int | np.random.SeedSequence | np.random.Generator
    ) -> CrossDataset:
        """Draw a teacher and n = round(sample_complexity * d^2) pairs of sequences.

        Parameters
        ----------
        sample_complexity : float
            alpha > 0, large enough for at least one pair.
        seed : int, SeedSequence or Generator
            The only source of randomness.
        """
        alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
        d, keys = self.prior.shape(self.dimension)
        n = round(alpha * d * d)
        if n < 1:
            raise ValueError(
                f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, "
                f"got {alpha!r}"
            )
        teacher_rng, query_rng, key_rng, noise_rng = check.generator("seed", seed).spawn(4)
        teacher = self.prior.sample(d, teacher_rng)
        x = query_rng.standard_normal((n, self.channel.queries, d))
        z = key_rng.standard_normal((n, self.channel.keys, keys))
        outputs = self.channel.output(cross_attention_indices(x, z, teacher), noise_rng)
        return CrossDataset(x, z, outputs, teacher)


def _check_model(prior: Any, channel: Any) -> None:
    if not isinstance(prior, BilinearPrior):
        raise TypeError(f"prior must be a BilinearPrior, got {prior!r}")
    if not (hasattr(channel, "queries") and hasattr(channel, "keys")):
        raise TypeError(f"channel must be one of cross-attention, got {channel!r}")


def cross_attention_indices(queries: ArrayLike, keys: ArrayLike, weights: ArrayLike) -> FloatArray:
    r"""Return :math:`h_{ab}=x_a^\top Sz_b/\sqrt d` (``cross_attention:indices``).

    Parameters
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    weights : array, shape (d, d')

    Returns
    -------
    array, shape (n, T, T')
    """
    x, z = _sequences("queries", queries), _sequences("keys", keys)
    s = check.reals("weights", weights)
    if s.shape != (x.shape[2], z.shape[2]):
        raise ValueError(f"weights must have shape {(x.shape[2], z.shape[2])}, got {s.shape}")
    if z.shape[0] != x.shape[0]:
        raise ValueError(f"keys must have {x.shape[0]} sequences, got {z.shape[0]}")
    n, t, d = x.shape
    projected = (x.reshape(n * t, d) @ s).reshape(n, t, s.shape[1])
    return np.asarray(projected @ z.transpose(0, 2, 1) / math.sqrt(d))


def cross_weak_recovery_threshold(channel: Informative, aspect_ratio: float = 1.0) -> float:
    r"""Return the threshold of :math:`\alpha/\rho` as :math:`\rho\to0`, :math:`\sqrt\psi/c(0)`.

    Below it the error stays at its value without data (``cross_attention:weak``).

    Examples
    --------
    >>> cross_weak_recovery_threshold(CrossSoftmaxChannel(2, 2))
    0.5
    """
    psi = check.real("aspect_ratio", aspect_ratio, low=0.0, open_low=True)
    if not hasattr(channel, "information_at"):
        raise TypeError(f"channel must be one of cross-attention, got {channel!r}")
    return float(math.sqrt(psi) / channel.information_at(1.0, 1.0))


# ---------------------------------------------------------------------------------------------
# Message passing
# ---------------------------------------------------------------------------------------------


def cross_attention_amp(
    dataset: CrossDataset,
    prior: BilinearPrior,
    channel: CrossChannel,
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
    damping: float | None = None,
    callback: Callable[[int, dict[str, float]], object] | None = None,
    progress: bool = False,
) -> AMPResult:
    r"""Estimate untied weights by approximate message passing (``cross_attention:iteration``).

    The iteration of :func:`aimlib.amp` with its defaults: measured noise and reaction, the
    denoiser continued along its tangent outside the bulk, damping that adapts.  One thing differs:
    damping that has to rise again and again falls ever more slowly, and comes to rest.

    Parameters
    ----------
    dataset : CrossDataset
        The teacher, if there is one, is used for ``estimation_error`` only.
    prior : BilinearPrior
    channel : cross-attention channel
    iterations, tolerance, damping, callback, progress
        As in :func:`aimlib.amp`.

    Returns
    -------
    AMPResult
        ``estimate`` has shape (d, d').

    Raises
    ------
    TypeError
        If the prior is not a BilinearPrior or the channel not one of cross-attention.
    ValueError
        If an argument is out of range, the channel does not fit the outputs, or the aspect ratio
        of the prior not the dimensions of the tokens.

    Examples
    --------
    >>> prior, channel = BilinearPrior(0.5), CrossSoftmaxChannel(2, 2)
    >>> data = CrossAttentionModel(40, prior, channel).sample(0.7, seed=1)
    >>> result = cross_attention_amp(data, prior, channel)
    >>> result.status, result.estimation_error < 1e-6
    ('converged', True)
    """
    if not isinstance(dataset, CrossDataset):
        raise TypeError(f"dataset must be a CrossDataset, got {type(dataset)!r}")
    _check_model(prior, channel)
    shape = (dataset.queries.shape[2], dataset.keys.shape[2])
    if prior.shape(shape[0]) != shape:
        raise ValueError(
            f"prior must have the aspect ratio of the dataset, {shape[1]}/{shape[0]}, "
            f"got {prior.aspect_ratio!r}"
        )
    if dataset.outputs.shape[1:] != (channel.queries, channel.keys):
        raise ValueError(
            f"channel must have the {dataset.outputs.shape[1:]} queries and keys of the dataset, "
            f"got {(channel.queries, channel.keys)}"
        )

    def sweep(
        estimate: FloatArray, reaction: float, variance: float, g: FloatArray
    ) -> tuple[FloatArray, float]:
        return _pass(dataset, channel, estimate, reaction, variance, g)

    problem = Problem(
        prior=prior,
        channel=channel,
        start=np.zeros(shape),
        outputs_shape=dataset.outputs.shape,
        teacher=dataset.teacher,
        sweep=sweep,
        denoise=lambda observed, delta: _denoise(observed, delta, prior),
    )
    return iterate(
        problem,
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        settle=0.5,
        callback=callback,
        progress=progress,
    )


def _pass(
    dataset: CrossDataset,
    channel: CrossChannel,
    estimate: FloatArray,
    reaction: float,
    variance: float,
    g: FloatArray,
) -> tuple[FloatArray, float]:
    """Update g in place; return sum of g Z, shape (d, d'), and the sum of g^2."""
    n, t, d = dataset.queries.shape
    total, squares = np.zeros_like(estimate), 0.0
    size = max(_BLOCK_BYTES // (8 * (t * d + dataset.keys[0].size)), 64)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        x, z = dataset.queries[rows], dataset.keys[rows]
        flat = x.reshape(-1, d)
        projected = (flat @ estimate).reshape(x.shape[0], t, -1)
        omega = projected @ z.transpose(0, 2, 1) / math.sqrt(d) - reaction * g[rows]
        block = (channel.posterior_mean(dataset.outputs[rows], omega, variance) - omega) / variance
        g[rows] = block
        squares += float(np.sum(block * block))
        total += flat.T @ (block @ z).reshape(-1, estimate.shape[1])
    return total / math.sqrt(d), squares


def _denoise(observed: FloatArray, delta: float, prior: BilinearPrior) -> tuple[FloatArray, float]:
    """Return D(R) and its divergence (cross_attention:divergence)."""
    left, lam, right = np.linalg.svd(observed, full_matrices=False)
    values = shrink(lam, delta, prior, "tangent")
    slopes = shrink_slopes(lam, delta, prior, "tangent")
    excess = abs(observed.shape[0] - observed.shape[1])
    return np.asarray((left * values) @ right), _divergence(lam, values, slopes, excess)


@njit
def _divergence(lam: np.ndarray, values: np.ndarray, slopes: np.ndarray, excess: int) -> float:
    """Sum of D', of |d - d'| D/lambda and, over pairs, of 2 (lD - mD')/(l^2 - m^2)."""
    total = 0.0
    for i in range(lam.size):
        ratio = values[i] / lam[i] if lam[i] > 0.0 else slopes[i]
        total += slopes[i] + excess * ratio
        for j in range(i):
            gap = (lam[j] - lam[i]) * (lam[j] + lam[i])
            if gap > 1e-13 * lam[0] * lam[0]:
                total += 2.0 * (lam[j] * values[j] - lam[i] * values[i]) / gap
            else:
                total += slopes[i] + ratio
    return total
