r"""Rotationally invariant priors of the attention weights, observed through Gaussian noise.

The matrix to be learned, :math:`S \in \mathbb{R}^{d\times d}`, is symmetric with eigenvectors that
are uniform on the orthogonal group.  Everything the theory asks of such a prior is asked of the
noisy matrix

.. math:: R = S + \sqrt{\Delta}\, G,

with :math:`G` from the GOE (off-diagonal variance :math:`1/d`, diagonal :math:`2/d`, so that its
spectrum is the semicircle of radius 2).  The chapter "Random-matrix toolbox" derives what follows.

The real axis is described by the *subordination point* :math:`u = \lambda - \Delta g(\lambda + i0)
= x + iv`, with :math:`g` the resolvent of :math:`R`.  The weights :math:`\Delta/|u-s|^2` that
:math:`u` gives to the clean eigenvalues :math:`s` sum to one inside the support.  Their mean is the
optimal denoiser :math:`D(\lambda) = \lambda - 2\Delta\,\mathrm{Re}\,g(\lambda)` and the average of
their variance over the spectrum of :math:`R` is the MMSE: sums of positive terms only, which keep
their relative accuracy at any noise.

Three families share one short list of methods: :class:`WishartPrior` (tied attention),
:class:`WignerPrior` (no structure) and :class:`SpectralPrior` (any spectrum).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray

__all__ = ["Denoised", "Estimated", "Prior", "SpectralPrior", "WignerPrior", "WishartPrior"]

Outside = Literal["resolvent", "edge"]


class Estimated(Protocol):
    """What state evolution asks of the law of a matrix, symmetric or not.

    ``weights`` says which matrices the law is about: "symmetric" ones, whose noise is a GOE, or
    "rectangular" ones, whose noise has independent entries of variance Delta/d.
    """

    @property
    def weights(self) -> Literal["symmetric", "rectangular"]: ...
    @property
    def coordinate_noise(self) -> float: ...
    @property
    def second_moment(self) -> float: ...
    @property
    def variance(self) -> float: ...
    @property
    def degrees_of_freedom(self) -> float: ...

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...


class Denoised(Estimated, Protocol):
    """What message passing asks beside: where the values of R are, and what becomes of them."""

    def support(self, noise: float) -> FloatArray: ...
    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray: ...


class Prior(Denoised, Protocol):
    """What the theory and the algorithms ask of a prior of symmetric matrices."""

    @property
    def mean_eigenvalue(self) -> float: ...

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any: ...
    def density(self, x: ArrayLike, noise: ArrayLike) -> Any: ...
    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray: ...
    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray: ...


# ---------------------------------------------------------------------------------------------
# Quadrature shared by all spectra: integrate over one interval of the support.
#
# The integrands have square-root ends.  With x = centre + half * cos(t) they are smooth and
# periodic in t, and the trapezoid in t converges geometrically, except where two parts of the
# support are about to merge; there a split at the narrow point and the double-exponential rule,
# which tolerates any end, take over.  A convergence test decides, never a guess.  The loops stand
# once for each integrand: numba cannot keep on disk a kernel that takes another one as argument.
# ---------------------------------------------------------------------------------------------

_TOLERANCE = 1e-11  # between n and 2n nodes; the error of the latter is about its square
_MOST_INTERVALS = 512
_DE_RANGE = 3.2
_DE_STEPS = 448
_DE_COARSEST = 16  # the stride of the first of five nested rules


@njit
def _has_converged(change: float, last_change: float) -> bool:
    """Whether a doubling of the nodes has reached rounding.

    Geometric convergence squares the error at each doubling.  Where the last two changes show it,
    a change of 1e-8 means that the finer sum is right to rounding.
    """
    return change <= _TOLERANCE or (change <= 1e-8 and change <= last_change**1.6)


def _double_exponential_rule() -> tuple[FloatArray, FloatArray]:
    """Return distances from the nearer end of [0, 2] (signed by the end) and weights."""
    t = np.linspace(-_DE_RANGE, _DE_RANGE, 2 * _DE_STEPS + 1)
    argument = 0.5 * math.pi * np.sinh(t)
    # 1 - tanh(|a|) without cancellation, so that nodes next to an end keep their distance to it
    distance = 2.0 / (np.exp(2.0 * np.abs(argument)) + 1.0)
    weight = 0.5 * math.pi * np.cosh(t) / np.cosh(argument) ** 2 * (t[1] - t[0])
    return np.where(t < 0, -distance, distance), weight


_DE_DISTANCE, _DE_WEIGHT = _double_exponential_rule()


# ---------------------------------------------------------------------------------------------
# Wishart: a cubic resolvent.  Inside the bulk its third root g3 is real, and the coefficients of
# the cubic give the denoiser D = Delta (g3 - sqrt(rho)) =: Delta e, then |g|^2 and Re g.
# ---------------------------------------------------------------------------------------------


@njit
def _inverse_resolvent(s: float, rho: float, noise: float) -> float:
    """z(s) = 1/s + Delta s + sqrt(rho)/(1 - s/sqrt(rho)) for real s (priors:cubic)."""
    root = math.sqrt(rho)
    return 1.0 / s + noise * s + rho / (root - s)


@njit
def _edge_condition(s: float, rho: float, noise: float) -> float:
    """Phi(s) = Delta s^2 + rho s^2/(sqrt(rho) - s)^2: Phi = 1 at the edges, Phi < 1 outside."""
    y = math.sqrt(rho) * s / (math.sqrt(rho) - s)
    return noise * s * s + y * y


@njit
def _bisect_edge(inside: float, outside: float, rho: float, noise: float) -> float:
    """Solve Phi(s) = 1 between a point with Phi < 1 and one with Phi > 1 to full precision."""
    for _ in range(200):
        middle = 0.5 * (inside + outside)
        if middle == inside or middle == outside:
            break
        if _edge_condition(middle, rho, noise) < 1.0:
            inside = middle
        else:
            outside = middle
    return inside


@njit
def _wishart_edges(rho: float, noise: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of bulks, the edges in z (ascending) and the resolvent at each edge."""
    root = math.sqrt(rho)
    points = np.empty(4)
    points[0] = _bisect_edge(0.0, -1.0 / math.sqrt(noise), rho, noise)
    points[3] = _bisect_edge(0.0, min(root, root / (1.0 + root)), rho, noise)
    cube = noise ** (1.0 / 3.0)
    bulks = 1
    if rho * (1.0 + cube) ** 3 < 1.0:  # the minimum of Phi beyond sqrt(rho), in closed form
        bulks = 2
        narrow = root * (1.0 + 1.0 / cube)
        points[1] = _bisect_edge(narrow, 1.0 / math.sqrt(noise), rho, noise)
        points[2] = _bisect_edge(narrow, root, rho, noise)
    if bulks == 1:
        points[1] = points[3]
    count = 2 * bulks
    edges = np.empty(count)
    for k in range(count):
        edges[k] = _inverse_resolvent(points[k], rho, noise)
    return bulks, edges, points[:count]


@njit
def _third_root(lam: float, rho: float, noise: float, low: float, high: float) -> float:
    """Solve z(sqrt(rho) + e) = lam for e = D/Delta in (low, high).

    With g3 = sqrt(rho) + e this is 1/g3 + Delta sqrt(rho) + Delta e - rho/e = lam.
    The left-hand side increases in e on the bracket, so a Newton step that leaves the bracket is
    replaced by a geometric bisection and the iteration cannot fail.
    """
    root = math.sqrt(rho)
    # 0 < 1/(sqrt(rho)+e) < 1/sqrt(rho) turns the equation into two quadratics that bound e
    for shift in (1.0 / root, 0.0):
        linear = noise * root + shift - lam
        discriminant = math.sqrt(linear * linear + 4.0 * noise * rho)
        if linear > 0.0:
            bound = 2.0 * rho / (linear + discriminant)
        else:
            bound = (discriminant - linear) / (2.0 * noise)
        if shift > 0.0:
            low = max(low, bound * (1.0 - 1e-14))
        else:
            high = min(high, bound * (1.0 + 1e-14))
    if high < low:
        high = low
    e = math.sqrt(low * high)
    for _ in range(200):
        inverse, linear, pole = 1.0 / (root + e), noise * (root + e), rho / e
        value = inverse + linear - pole - lam
        if abs(value) <= 2e-16 * (inverse + linear + pole + abs(lam)):
            return e  # nothing but rounding is left of the residual
        slope = noise - inverse * inverse + pole / e
        if value > 0.0:
            high = e
        else:
            low = e
        following = e - value / slope if slope > 0.0 else low
        if not low < following < high:
            following = math.sqrt(low * high)
        if abs(following - e) <= 2e-16 * e or following == low or following == high:
            return following
        e = following
    return e


@njit
def _wishart_resolvent_at(lam: float, e: float, rho: float, noise: float) -> tuple[float, float]:
    """Return (Re g, |g|^2) at an eigenvalue inside a bulk, where D = Delta e."""
    root = math.sqrt(rho)
    third = root + e
    square = root / (noise * third)
    # Two exact expressions of Re g; each is ill-conditioned somewhere, so take the better one.
    error_sum = (abs(lam) + noise * e) / (2.0 * noise)
    error_product = ((abs(lam) * root + abs(1.0 - rho)) / noise + square) / (2.0 * third)
    if error_sum < error_product:
        return (lam - noise * e) / (2.0 * noise), square
    return ((lam * root + (1.0 - rho)) / noise - square) / (2.0 * third), square


@njit
def _wishart_inside(
    lam: float, rho: float, noise: float, low: float, high: float
) -> tuple[float, float, float]:
    """Return (Re g, -Im g, D) at an eigenvalue inside a bulk."""
    e = _third_root(lam, rho, noise, low, high)
    real, square = _wishart_resolvent_at(lam, e, rho, noise)
    return real, math.sqrt(max(square - real * real, 0.0)), noise * e


@njit
def _wishart_bracket(bulk: int, bulks: int, rho: float, noise: float) -> tuple[float, float]:
    """Bracket of e = g3 - sqrt(rho) for the eigenvalues of one bulk."""
    if bulks == 1:
        return 0.0, math.inf
    turning = math.sqrt(rho) / noise ** (1.0 / 3.0)
    return (0.0, turning) if bulk == 0 else (turning, math.inf)


@njit
def _wishart_outside(
    lam: float, rho: float, noise: float, bulks: int, edges: np.ndarray, points: np.ndarray
) -> float:
    """Real resolvent outside the support: the root with dz/dg < 0, by bisection on its interval."""
    left: float = 0.0
    right: float = 0.0
    if lam >= edges[-1]:
        right = points[-1]
    elif lam <= edges[0]:
        left = points[0]
    else:  # inside the gap; points[1] > points[2] there
        left, right = points[2], points[1]
    for _ in range(200):
        middle = 0.5 * (left + right)
        if middle == left or middle == right:
            break
        if _inverse_resolvent(middle, rho, noise) > lam:  # z decreases on the interval
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


@njit
def _locate(lam: float, edges: np.ndarray) -> int:
    """Index of the interval of the support that holds lam, or -1."""
    for k in range(edges.size // 2):
        if edges[2 * k] < lam < edges[2 * k + 1]:
            return k
    return -1


@njit
def _wishart_resolvent(
    lam: np.ndarray, rho: float, noise: np.ndarray, real: np.ndarray, imaginary: np.ndarray
) -> None:
    """Fill Re g and -Im g for flat arrays of eigenvalues and noises."""
    last = -1.0
    bulks, edges, points = 1, np.empty(2), np.empty(2)
    for i in range(lam.size):
        if noise[i] != last:
            bulks, edges, points = _wishart_edges(rho, noise[i])
            last = noise[i]
        k = _locate(lam[i], edges)
        if k >= 0:
            low, high = _wishart_bracket(k, bulks, rho, noise[i])
            real[i], imaginary[i], _ = _wishart_inside(lam[i], rho, noise[i], low, high)
        else:
            real[i] = _wishart_outside(lam[i], rho, noise[i], bulks, edges, points)
            imaginary[i] = 0.0


@njit
def _wishart_shrink(lam: np.ndarray, rho: float, noise: float, hold: bool, out: np.ndarray) -> None:
    """Fill D(lambda); outside the support follow the resolvent, or hold Re g at its edge value."""
    bulks, edges, points = _wishart_edges(rho, noise)
    for i in range(lam.size):
        k = _locate(lam[i], edges)
        if k >= 0:
            low, high = _wishart_bracket(k, bulks, rho, noise)
            _, _, out[i] = _wishart_inside(lam[i], rho, noise, low, high)
        elif hold:
            nearest = np.argmin(np.abs(edges - lam[i]))
            out[i] = lam[i] - 2.0 * noise * points[nearest]
        else:
            g = _wishart_outside(lam[i], rho, noise, bulks, edges, points)
            out[i] = lam[i] - 2.0 * noise * g


@njit
def _wishart_integrand(log_e: float, rho: float, noise: float, kind: int) -> float:
    """Density times quantity to average times d(lambda)/d(log e).

    The third root runs along a bulk as the eigenvalue does, and lambda is explicit in it.  In its
    logarithm hard edges and near-merging bulks are smooth, so that few nodes are enough.
    The quantity is, for kind 0: one, 1: MMSE/Delta, 2: the log-potential.
    """
    root = math.sqrt(rho)
    e = math.exp(log_e)
    inverse, pole = 1.0 / (root + e), rho / e
    lam = inverse + noise * (root + e) - pole
    jacobian = noise * e - e * inverse * inverse + pole
    real, square = _wishart_resolvent_at(lam, e, rho, noise)
    if square <= real * real:
        return 0.0
    weight = math.sqrt(square - real * real) / math.pi * jacobian
    if kind == 0:
        return weight
    if kind == 1:  # mu |g|^2/|1 - g/sqrt(rho)|^2, the positive form of mu (1 - Delta |g|^2)
        return weight * square * noise * e / root
    ratio = complex(real, -math.sqrt(square - real * real)) / root
    inner = rho * (math.log(abs(1.0 - ratio)) + (ratio / (1.0 - ratio)).real)
    potential = -0.5 * math.log(square) + 0.5 * noise * (2.0 * real * real - square) + inner
    return weight * potential


@njit
def _wishart_chebyshev(
    left: float, right: float, rho: float, noise: float, kind: int
) -> tuple[float, bool]:
    """Trapezoid in t, log e = centre + half cos t, with nested doubling until converged."""
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    intervals = 8
    total = 0.0
    for j in range(1, intervals):
        t = math.pi * j / intervals
        total += _wishart_integrand(centre + half * math.cos(t), rho, noise, kind) * math.sin(t)
    previous, last_change = total * math.pi / intervals * half, 1.0
    while intervals < _MOST_INTERVALS:
        intervals *= 2
        for j in range(1, intervals, 2):
            t = math.pi * j / intervals
            total += _wishart_integrand(centre + half * math.cos(t), rho, noise, kind) * math.sin(t)
        current = total * math.pi / intervals * half
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if _has_converged(change, last_change):
            return current, True
        if intervals >= 64 and change ** (_MOST_INTERVALS / intervals) > 1e-8:
            return current, False  # at this geometric rate it will not: do not try
        previous, last_change = current, change
    return previous, False


@njit
def _wishart_double_exponential(
    left: float, right: float, rho: float, noise: float, kind: int
) -> float:
    half = 0.5 * (right - left)
    stride, total, previous, last_change = _DE_COARSEST, 0.0, math.inf, 1.0
    while True:
        for j in range(0, _DE_DISTANCE.size, stride):
            if stride < _DE_COARSEST and j % (2 * stride) == 0:
                continue  # counted by a coarser rule
            distance = _DE_DISTANCE[j]
            log_e = left - half * distance if distance < 0.0 else right - half * distance
            total += _wishart_integrand(log_e, rho, noise, kind) * _DE_WEIGHT[j]
        current = total * half * stride
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if stride == 1 or _has_converged(change, last_change):
            return current
        previous, last_change = current, change
        stride //= 2


@njit
def _wishart_average(rho: float, noise: float, kind: int) -> float:
    """Integrate over all bulks."""
    bulks, _, points = _wishart_edges(rho, noise)
    root = math.sqrt(rho)
    # the third root at an edge, where the other two are equal to s: e = rho^{3/2}/(Delta (..)^2)
    ends = np.log(rho * root / noise) - 2.0 * np.log(np.abs(root - points))
    narrow = 0.5 * math.log(rho) - math.log(noise) / 3.0
    total = 0.0
    for k in range(bulks):
        left, right = ends[2 * k], ends[2 * k + 1]
        value, converged = _wishart_chebyshev(left, right, rho, noise, kind)
        if not converged:
            if left < narrow < right:
                value = _wishart_double_exponential(
                    left, narrow, rho, noise, kind
                ) + _wishart_double_exponential(narrow, right, rho, noise, kind)
            else:
                value = _wishart_double_exponential(left, right, rho, noise, kind)
        total += value
    return total


@njit
def _wishart_mmse(rho: float, noise: np.ndarray, out: np.ndarray) -> None:
    for i in range(noise.size):
        out[i] = noise[i] * _wishart_average(rho, noise[i], 1)


@njit
def _wishart_potential(rho: float, noise: np.ndarray, out: np.ndarray) -> None:
    for i in range(noise.size):
        out[i] = _wishart_average(rho, noise[i], 2)


# ---------------------------------------------------------------------------------------------
# Any spectrum made of atoms.  x = Re u is the coordinate of choice: h = v^2, the density and the
# Jacobian d(lambda)/dx are explicit sums over atoms once the monotone equation for h is solved.
# ---------------------------------------------------------------------------------------------


@njit
def _atoms_height(x: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Solve sum_i w_i/((x - s_i)^2 + h) = 1/Delta for h >= 0 (0 outside the support).

    The reciprocal of the sum is concave and increasing in h: Newton's iteration on it, started
    below the root, climbs to it monotonically.
    """
    h = 0.0
    for i in range(atoms.size):
        h = max(h, weights[i] * noise - (x - atoms[i]) ** 2)
    for _ in range(200):
        total, derivative = 0.0, 0.0
        for i in range(atoms.size):
            q = (x - atoms[i]) ** 2 + h
            total += weights[i] / q
            derivative += weights[i] / (q * q)
        # 1/total - Delta = 0, (1/total)' = derivative/total^2
        step = (noise - 1.0 / total) * total * total / derivative
        if not step > 2e-16 * h or step <= 0.0:
            break
        h += step
    return h


@njit
def _atoms_curve(
    x: float, h: float, atoms: np.ndarray, weights: np.ndarray, noise: float
) -> tuple[float, float, float]:
    """Return (Re g, D, d(lambda)/dx) at the subordination point x + i sqrt(h)."""
    real, a0, a1 = 0.0, 0.0, 0.0
    for i in range(atoms.size):
        gap = x - atoms[i]
        q = gap * gap + h
        real += weights[i] * gap / q
        a0 += weights[i] / (q * q)
        a1 += weights[i] * gap / (q * q)
    if h > 0.0:
        jacobian = 2.0 * noise * (h * a0 + a1 * a1 / a0)
    else:  # outside the support lambda = x + Delta g_S(x)
        jacobian = 1.0
        for i in range(atoms.size):
            jacobian -= noise * weights[i] / (x - atoms[i]) ** 2
    return real, x - noise * real, jacobian


@njit
def _atoms_potential(x: float, h: float, atoms: np.ndarray, weights: np.ndarray) -> float:
    total = 0.0
    for i in range(atoms.size):
        total += 0.5 * weights[i] * math.log((x - atoms[i]) ** 2 + h)
    return total


@njit
def _atoms_integrand(
    x: float, atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int
) -> float:
    """Density times Jacobian times the quantity to average (0: one, 1: MMSE, 2: log-potential)."""
    h = _atoms_height(x, atoms, weights, noise)
    if h <= 0.0:
        return 0.0
    real, denoised, jacobian = _atoms_curve(x, h, atoms, weights, noise)
    mass = math.sqrt(h) / (math.pi * noise) * jacobian
    if kind == 0:
        return mass
    if kind == 1:
        variance = 0.0
        for i in range(atoms.size):
            weight = noise * weights[i] / ((x - atoms[i]) ** 2 + h)
            variance += weight * (atoms[i] - denoised) ** 2
        return mass * variance
    imaginary = math.sqrt(h) / noise
    potential = _atoms_potential(x, h, atoms, weights)
    return mass * (potential + 0.5 * noise * (real * real - imaginary * imaginary))


@njit
def _atoms_excess(x: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Delta * sum_i w_i/(x - s_i)^2 - 1, positive inside the support (in the coordinate x)."""
    total = 0.0
    for i in range(atoms.size):
        gap = x - atoms[i]
        if gap == 0.0:
            return math.inf
        total += weights[i] / (gap * gap)
    return noise * total - 1.0


@njit
def _atoms_root(
    inside: float, outside: float, atoms: np.ndarray, weights: np.ndarray, noise: float
) -> float:
    for _ in range(200):
        middle = 0.5 * (inside + outside)
        if middle == inside or middle == outside:
            break
        if _atoms_excess(middle, atoms, weights, noise) > 0.0:
            inside = middle
        else:
            outside = middle
    return inside


@njit
def _atoms_narrow(left: float, right: float, atoms: np.ndarray, weights: np.ndarray) -> float:
    """Minimum of sum_i w_i/(x - s_i)^2 between two neighbouring atoms (it is convex there)."""
    for _ in range(200):
        middle = 0.5 * (left + right)
        if middle == left or middle == right:
            break
        slope = 0.0
        for i in range(atoms.size):
            slope -= weights[i] / (middle - atoms[i]) ** 3
        if slope < 0.0:
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


@njit
def _atoms_intervals(
    atoms: np.ndarray, weights: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of the support in the coordinate x, and the narrow point of each gap."""
    n = atoms.size
    reach = math.sqrt(noise)
    narrow = np.empty(max(n - 1, 0))
    ends = np.empty(2 * n)
    ends[0] = _atoms_root(atoms[0], atoms[0] - 1.01 * reach, atoms, weights, noise)
    count = 1
    for i in range(n - 1):
        narrow[i] = _atoms_narrow(atoms[i], atoms[i + 1], atoms, weights)
        if _atoms_excess(narrow[i], atoms, weights, noise) < 0.0:
            ends[count] = _atoms_root(atoms[i], narrow[i], atoms, weights, noise)
            ends[count + 1] = _atoms_root(atoms[i + 1], narrow[i], atoms, weights, noise)
            count += 2
    ends[count] = _atoms_root(atoms[n - 1], atoms[n - 1] + 1.01 * reach, atoms, weights, noise)
    return ends[: count + 1], narrow


@njit
def _atoms_chebyshev(
    left: float, right: float, atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int
) -> tuple[float, bool]:
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    intervals = 8
    total = 0.0
    for j in range(1, intervals):
        t = math.pi * j / intervals
        total += _atoms_integrand(
            centre + half * math.cos(t), atoms, weights, noise, kind
        ) * math.sin(t)
    previous, last_change = total * math.pi / intervals * half, 1.0
    while intervals < _MOST_INTERVALS:
        intervals *= 2
        for j in range(1, intervals, 2):
            t = math.pi * j / intervals
            total += _atoms_integrand(
                centre + half * math.cos(t), atoms, weights, noise, kind
            ) * math.sin(t)
        current = total * math.pi / intervals * half
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if _has_converged(change, last_change):
            return current, True
        if intervals >= 64 and change ** (_MOST_INTERVALS / intervals) > 1e-8:
            return current, False  # at this geometric rate it will not: do not try
        previous, last_change = current, change
    return previous, False


@njit
def _atoms_double_exponential(
    left: float, right: float, atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int
) -> float:
    half = 0.5 * (right - left)
    stride, total, previous, last_change = _DE_COARSEST, 0.0, math.inf, 1.0
    while True:
        for j in range(0, _DE_DISTANCE.size, stride):
            if stride < _DE_COARSEST and j % (2 * stride) == 0:
                continue  # counted by a coarser rule
            distance = _DE_DISTANCE[j]
            x = left - half * distance if distance < 0.0 else right - half * distance
            total += _atoms_integrand(x, atoms, weights, noise, kind) * _DE_WEIGHT[j]
        current = total * half * stride
        change = abs(current - previous) / abs(current) if current != 0.0 else 0.0
        if stride == 1 or _has_converged(change, last_change):
            return current
        previous, last_change = current, change
        stride //= 2


@njit
def _atoms_average(atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int) -> float:
    ends, narrow = _atoms_intervals(atoms, weights, noise)
    total = 0.0
    for k in range(ends.size // 2):
        left, right = ends[2 * k], ends[2 * k + 1]
        value, converged = _atoms_chebyshev(left, right, atoms, weights, noise, kind)
        if not converged:
            value = 0.0
            start = left
            for point in narrow:
                if start < point < right:
                    value += _atoms_double_exponential(start, point, atoms, weights, noise, kind)
                    start = point
            value += _atoms_double_exponential(start, right, atoms, weights, noise, kind)
        total += value
    return total


@njit
def _atoms_averages(
    atoms: np.ndarray, weights: np.ndarray, noise: np.ndarray, kind: int, out: np.ndarray
) -> None:
    for i in range(noise.size):
        out[i] = _atoms_average(atoms, weights, noise[i], kind)


@njit
def _atoms_position(lam: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Invert lambda(x), which increases on the whole line, with |lambda - x| <= sqrt(Delta)."""
    left, right = lam - 1.01 * math.sqrt(noise), lam + 1.01 * math.sqrt(noise)
    # |g|^2 <= 1/Delta, with equality at the edges; the margin is for rounding
    x = lam
    for _ in range(300):
        h = _atoms_height(x, atoms, weights, noise)
        real, _, jacobian = _atoms_curve(x, h, atoms, weights, noise)
        value = x + noise * real - lam
        if value > 0.0:
            right = x
        else:
            left = x
        following = x - value / jacobian if jacobian > 0.0 else 0.5 * (left + right)
        if not left < following < right:
            following = 0.5 * (left + right)
        if abs(following - x) <= 4e-16 * max(abs(x), 1e-300) or following in (left, right):
            return following
        x = following
    return x


@njit
def _atoms_resolvent(
    lam: np.ndarray,
    atoms: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
    real: np.ndarray,
    imaginary: np.ndarray,
) -> None:
    for i in range(lam.size):
        x = _atoms_position(lam[i], atoms, weights, noise[i])
        h = _atoms_height(x, atoms, weights, noise[i])
        real[i], _, _ = _atoms_curve(x, h, atoms, weights, noise[i])
        imaginary[i] = math.sqrt(h) / noise[i]


# ---------------------------------------------------------------------------------------------
# The public border: validate, broadcast, call a kernel, give a float for a float.
# ---------------------------------------------------------------------------------------------


def _noises(noise: ArrayLike) -> FloatArray:
    return check.reals("noise", noise, low=0.0, open_low=True)


def _map_noise(noise: ArrayLike, kernel: Callable[[FloatArray, FloatArray], None]) -> Any:
    """Apply a kernel that fills an array from an array of noises; a scalar gives a float."""
    noises = _noises(noise)
    out = np.empty(noises.size)
    kernel(noises.ravel(), out)
    return float(out[0]) if noises.ndim == 0 else out.reshape(noises.shape)


def _map_points(
    x: ArrayLike,
    noise: ArrayLike,
    kernel: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], None],
) -> Any:
    """Apply a kernel that fills Re g and -Im g; returns complex values of the broadcast shape."""
    points, noises = np.broadcast_arrays(check.reals("x", x), _noises(noise))
    real, imaginary = np.empty(points.size), np.empty(points.size)
    kernel(points.ravel(), noises.ravel(), real, imaginary)
    values = (real - 1j * imaginary).reshape(points.shape)
    return complex(values) if points.ndim == 0 else values


def _density(resolvent: Any) -> Any:
    values = -np.imag(resolvent) / math.pi + 0.0
    return float(values) if np.ndim(values) == 0 else values


def _outside(outside: str) -> bool:
    if outside not in ("resolvent", "edge"):
        raise ValueError(f"outside must be 'resolvent' or 'edge', got {outside!r}")
    return outside == "edge"


def _shrink_matrix(
    matrix: ArrayLike, noise: float, shrink: Callable[[FloatArray, float], FloatArray]
) -> FloatArray:
    """Keep the eigenvectors of a symmetric matrix and shrink its eigenvalues."""
    observed = check.symmetric_matrix("matrix", matrix)
    check.real("noise", noise, low=0.0, open_low=True)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (observed + observed.T))
    estimate: FloatArray = (vectors * shrink(eigenvalues, noise)) @ vectors.T
    return 0.5 * (estimate + estimate.T)


def _information(noise: ArrayLike, potential: Callable[[FloatArray], Any]) -> Any:
    """(1/d^2) I(S; R) from the mean log-potential (priors:information)."""
    noises = _noises(noise)
    values = 0.5 * potential(noises) - 0.25 * np.log(noises) + 0.125
    return float(values) if noises.ndim == 0 else values


@dataclass(frozen=True)
class WishartPrior:
    r"""Tied attention: :math:`S = W W^\top/\sqrt{rd}`, Gaussian :math:`W\in\mathbb{R}^{d\times r}`.

    The spectrum of :math:`S` is :math:`\sqrt\rho` times a Marchenko–Pastur law (free Poisson of
    rate :math:`\rho = r/d` and jump :math:`\rho^{-1/2}`), so that the resolvent :math:`g` of
    :math:`R = S + \sqrt\Delta G` solves (``priors:cubic``)

    .. math:: z = \frac1g + \Delta g + \frac{\sqrt\rho}{1 - g/\sqrt\rho}.

    Parameters
    ----------
    width_ratio : float
        :math:`\rho = r/d > 0`, the width of the attention head over the embedding dimension.

    Raises
    ------
    ValueError
        If ``width_ratio`` is not a finite positive number.

    Examples
    --------
    >>> prior = WishartPrior(0.5)
    >>> round(prior.mmse(1.0), 10)
    0.3969486359
    >>> prior.support(0.001).shape
    (2, 2)
    """

    width_ratio: float
    weights: ClassVar[Literal["symmetric"]] = "symmetric"

    def __post_init__(self) -> None:
        value = check.real("width_ratio", self.width_ratio, low=0.0, open_low=True)
        object.__setattr__(self, "width_ratio", value)

    @property
    def coordinate_noise(self) -> float:
        """2: the GOE has variance 2/d in every orthonormal coordinate of the symmetric matrices."""
        return 2.0

    @property
    def mean_eigenvalue(self) -> float:
        r"""Mean eigenvalue :math:`\sqrt\rho`."""
        return math.sqrt(self.width_ratio)

    @property
    def second_moment(self) -> float:
        r""":math:`Q = \lim \mathrm{Tr}\,S^2/d = 1 + \rho`."""
        return 1.0 + self.width_ratio

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, Q minus the squared mean: 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        r"""Parameters of :math:`S` over :math:`d^2/2`: :math:`\kappa = 2\rho-\rho^2`, at most 1."""
        rho = self.width_ratio
        return 2.0 * rho - rho * rho if rho < 1.0 else 1.0

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the spectrum of R, shape (k, 2), with k = 1 or 2 bulks.

        There are two bulks if and only if rho (1 + noise^{1/3})^3 < 1 (``priors:merging``).
        """
        delta = check.real("noise", noise, low=0.0, open_low=True)
        _, edges, _ = _wishart_edges(self.width_ratio, delta)
        return np.asarray(edges, dtype=np.float64).reshape(-1, 2)

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise`` (``priors:cubic``)."""
        rho = self.width_ratio
        return _map_points(x, noise, lambda p, n, re, im: _wishart_resolvent(p, rho, n, re, im))

    def density(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the limiting eigenvalue density of R at ``x``; arrays broadcast."""
        return _density(self.resolvent(x, noise))

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    def mmse(self, noise: ArrayLike) -> Any:
        r"""Return the minimal error :math:`E\|S-\hat S\|_F^2/d` given R (``priors:mmse``).

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.

        Returns
        -------
        float or array
            Between 0 and min(noise, prior variance); relative accuracy about 1e-11.
        """
        if type(noise) is float and 0.0 < noise < math.inf:  # the inner loop of every root search
            return noise * float(_wishart_average(self.width_ratio, noise, 1))
        return _map_noise(noise, lambda n, out: _wishart_mmse(self.width_ratio, n, out))

    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...
    def information(self, noise: ArrayLike) -> Any:
        """Return the mutual information of S and R over d^2 (``priors:information``)."""
        return _information(noise, self._potential)

    def _potential(self, noise: FloatArray) -> Any:
        return _map_noise(noise, lambda n, out: _wishart_potential(self.width_ratio, n, out))

    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        r"""Return the denoised eigenvalues :math:`\lambda - 2\Delta\,\mathrm{Re}\,g(\lambda)`.

        Parameters
        ----------
        eigenvalues : array
            Eigenvalues of R, any shape.
        noise : float
            :math:`\Delta > 0`.
        outside : {"resolvent", "edge"}
            What to do with eigenvalues outside the limiting support, which every finite matrix
            has: follow the resolvent (the limit theory), or hold Re g at its value at the nearest
            edge, which keeps the slope of the map at 1 there.
        """
        lam = check.reals("eigenvalues", eigenvalues)
        delta = check.real("noise", noise, low=0.0, open_low=True)
        out = np.empty(lam.size)
        _wishart_shrink(lam.ravel(), self.width_ratio, delta, _outside(outside), out)
        return out.reshape(lam.shape)

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate of S given R (``priors:rie``).

        Parameters
        ----------
        matrix : array, shape (d, d)
            The observed symmetric matrix R.
        noise : float
            Its noise level Delta > 0.
        outside : {"resolvent", "edge"}
            See :meth:`shrink`.

        Raises
        ------
        ValueError
            If ``matrix`` is not square, finite and symmetric or ``noise`` is not positive.
        """
        return _shrink_matrix(matrix, noise, lambda lam, n: self.shrink(lam, n, outside))

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d); the width is the integer nearest to width_ratio * dimension."""
        d = check.integer("dimension", dimension, low=1)
        width = round(self.width_ratio * d)
        if width < 1:
            raise ValueError(
                f"dimension must make width_ratio * dimension round to at least 1, "
                f"got dimension {d} with width_ratio {self.width_ratio!r}"
            )
        w = check.generator("rng", rng).standard_normal((d, width))
        return w @ w.T / math.sqrt(width * d)


@dataclass(frozen=True)
class WignerPrior:
    r"""No structure: :math:`S = m I + G` with G from the GOE, a semicircle of radius 2 around m.

    Then :math:`R` is a semicircle of variance :math:`1+\Delta`, the denoiser is the linear
    shrinkage :math:`m + (\lambda-m)/(1+\Delta)` and :math:`\mathrm{mmse} = \Delta/(1+\Delta)`
    (``priors:wigner``).

    Parameters
    ----------
    mean : float
        Mean eigenvalue m.

    Examples
    --------
    >>> WignerPrior().mmse(1.0)
    0.5
    """

    mean: float = 0.0
    weights: ClassVar[Literal["symmetric"]] = "symmetric"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", check.real("mean", self.mean))

    @property
    def coordinate_noise(self) -> float:
        """2: the GOE has variance 2/d in every orthonormal coordinate of the symmetric matrices."""
        return 2.0

    @property
    def mean_eigenvalue(self) -> float:
        """Mean of the semicircle, m."""
        return self.mean

    @property
    def second_moment(self) -> float:
        """Q = 1 + m^2."""
        return 1.0 + self.mean**2

    @property
    def variance(self) -> float:
        """Error of the best constant estimate: 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        """All d^2/2 parameters: 1."""
        return 1.0

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the semicircle of R, shape (1, 2)."""
        delta = check.real("noise", noise, low=0.0, open_low=True)
        edge = 2.0 * math.sqrt(1.0 + delta)
        return self.mean + np.array([[-edge, edge]])

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise``."""

        def fill(
            points: FloatArray, noises: FloatArray, real: FloatArray, imaginary: FloatArray
        ) -> None:
            centred = points - self.mean
            variance = 1.0 + noises
            inside = centred**2 < 4.0 * variance
            root = np.sqrt(np.abs(centred**2 - 4.0 * variance))
            far = 2.0 / (centred + np.copysign(root, centred) + inside)  # inside: not used
            real[:] = np.where(inside, centred / (2.0 * variance), far)
            imaginary[:] = np.where(inside, root / (2.0 * variance), 0.0)

        return _map_points(x, noise, fill)

    def density(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the eigenvalue density of R at ``x``; arrays broadcast."""
        return _density(self.resolvent(x, noise))

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    def mmse(self, noise: ArrayLike) -> Any:
        """Return Delta/(1 + Delta)."""
        noises = _noises(noise)
        values = noises / (1.0 + noises)
        return float(values) if noises.ndim == 0 else values

    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...
    def information(self, noise: ArrayLike) -> Any:
        """Return log(1 + 1/Delta)/4, the mutual information over d^2."""
        noises = _noises(noise)
        values = 0.25 * np.log1p(1.0 / noises)
        return float(values) if noises.ndim == 0 else values

    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the denoised eigenvalues.

        The posterior of a GOE matrix is Gaussian, so the linear shrinkage is optimal for every
        eigenvalue at every d; ``outside`` is accepted for the common protocol and changes nothing.
        """
        lam = check.reals("eigenvalues", eigenvalues)
        delta = check.real("noise", noise, low=0.0, open_low=True)
        _outside(outside)
        return self.mean + (lam - self.mean) / (1.0 + delta)

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate m I + (R - m I)/(1 + Delta) of S."""
        observed = check.symmetric_matrix("matrix", matrix)
        delta = check.real("noise", noise, low=0.0, open_low=True)
        _outside(outside)
        shrunk = 0.5 * (observed + observed.T) / (1.0 + delta)
        return np.asarray(shrunk + self.mean * delta / (1.0 + delta) * np.eye(len(shrunk)))

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d): m I and a GOE matrix with off-diagonal variance 1/d."""
        d = check.integer("dimension", dimension, low=1)
        a = check.generator("rng", rng).standard_normal((d, d))
        return (a + a.T) / math.sqrt(2.0 * d) + self.mean * np.eye(d)


@dataclass(frozen=True, init=False, eq=False)
class SpectralPrior:
    r"""Any rotationally invariant prior, its spectrum given by atoms or by samples.

    :math:`S = O\,\mathrm{diag}(s)\,O^\top` with Haar-distributed :math:`O`.  The spectrum of R is
    the free convolution of the atoms with a semicircle, :math:`g(z) = g_S(z - \Delta g(z))`
    (``priors:subordination``).

    Parameters
    ----------
    eigenvalues : array, shape (k,)
        Positions of the atoms, or samples of the spectrum.
    weights : array, shape (k,), optional
        Positive weights; they are normalised to sum to one.  Equal by default.

    Raises
    ------
    ValueError
        If the arrays are empty, not finite, of different shape, or a weight is not positive.

    Examples
    --------
    A projector on half of the space, shifted to mean zero:

    >>> prior = SpectralPrior([-1.0, 1.0])
    >>> prior.degrees_of_freedom
    0.5
    >>> prior.support(0.01).shape
    (2, 2)
    """

    eigenvalues: FloatArray  # distinct and ascending
    masses: FloatArray  # their shares, which sum to one
    weights: ClassVar[Literal["symmetric"]] = "symmetric"

    def __init__(self, eigenvalues: ArrayLike, weights: ArrayLike | None = None) -> None:
        positions = check.reals("eigenvalues", eigenvalues)
        if positions.ndim != 1 or positions.size == 0:
            raise ValueError(
                f"eigenvalues must be a non-empty array of shape (k,), got shape {positions.shape}"
            )
        shares = (
            np.ones(positions.size)
            if weights is None
            else check.reals("weights", weights, low=0.0, open_low=True)
        )
        if shares.shape != positions.shape:
            raise ValueError(
                f"weights must have the shape of eigenvalues, {positions.shape}, got {shares.shape}"
            )
        atoms, inverse = np.unique(positions, return_inverse=True)
        masses = np.bincount(inverse, weights=shares / shares.sum(), minlength=atoms.size)
        for name, array in (("eigenvalues", atoms), ("masses", masses)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpectralPrior):
            return NotImplemented
        return np.array_equal(self.eigenvalues, other.eigenvalues) and np.array_equal(
            self.masses, other.masses
        )

    def __hash__(self) -> int:
        return hash((self.eigenvalues.tobytes(), self.masses.tobytes()))

    @property
    def coordinate_noise(self) -> float:
        """2: the GOE has variance 2/d in every orthonormal coordinate of the symmetric matrices."""
        return 2.0

    @property
    def mean_eigenvalue(self) -> float:
        """Mean of the spectrum."""
        return float(self.masses @ self.eigenvalues)

    @property
    def second_moment(self) -> float:
        """Q, the mean square of the spectrum."""
        return float(self.masses @ self.eigenvalues**2)

    @property
    def variance(self) -> float:
        """Variance of the spectrum, the error of the best constant estimate."""
        return float(self.masses @ (self.eigenvalues - self.mean_eigenvalue) ** 2)

    @property
    def degrees_of_freedom(self) -> float:
        r""":math:`1 - \sum_i w_i^2`: rotations inside an eigenspace change nothing."""
        return float(1.0 - self.masses @ self.masses)

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the spectrum of R, shape (k, 2)."""
        delta = check.real("noise", noise, low=0.0, open_low=True)
        ends, _ = _atoms_intervals(self.eigenvalues, self.masses, delta)
        gaps = ends[:, None] - self.eigenvalues
        return np.asarray(ends + delta * (self.masses / gaps).sum(axis=1)).reshape(-1, 2)

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise``."""
        return _map_points(
            x,
            noise,
            lambda p, n, re, im: _atoms_resolvent(p, self.eigenvalues, self.masses, n, re, im),
        )

    def density(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the limiting eigenvalue density of R at ``x``; arrays broadcast."""
        return _density(self.resolvent(x, noise))

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    def mmse(self, noise: ArrayLike) -> Any:
        """Return the minimal error of S given R (``priors:mmse``)."""
        return self._average(noise, 1)

    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...
    def information(self, noise: ArrayLike) -> Any:
        """Return the mutual information of S and R over d^2 (``priors:information``)."""
        return _information(noise, lambda n: self._average(n, 2))

    def _average(self, noise: ArrayLike, kind: int) -> Any:
        return _map_noise(
            noise, lambda n, out: _atoms_averages(self.eigenvalues, self.masses, n, kind, out)
        )

    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the optimally denoised eigenvalues; see :meth:`WishartPrior.shrink`."""
        lam = check.reals("eigenvalues", eigenvalues)
        delta = check.real("noise", noise, low=0.0, open_low=True)
        probe = lam
        if _outside(outside):
            edges = self.support(delta).ravel()
            nearest = edges[np.argmin(np.abs(lam[..., None] - edges), axis=-1)]
            bulk = np.searchsorted(edges, lam)
            probe = np.where(bulk % 2 == 1, lam, nearest)
        held: NDArray[np.complex128] = np.asarray(self.resolvent(probe, delta))
        return lam - 2.0 * delta * held.real

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate of S given R (``priors:rie``)."""
        return _shrink_matrix(matrix, noise, lambda lam, n: self.shrink(lam, n, outside))

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d): the quantiles of the spectrum in a Haar-random basis."""
        d = check.integer("dimension", dimension, low=1)
        generator = check.generator("rng", rng)
        levels = (np.arange(d) + 0.5) / d
        index = np.searchsorted(np.cumsum(self.masses), levels)
        spectrum = self.eigenvalues[np.minimum(index, self.eigenvalues.size - 1)]
        q, r = np.linalg.qr(generator.standard_normal((d, d)))
        basis = q * np.sign(np.diag(r))  # the sign fixes the phase that QR leaves free: Haar
        return np.asarray((basis * spectrum) @ basis.T)
