"""The singular values of a rectangular matrix in noise: compiled kernels of ``BilinearPrior``.

e = P - psi rho is the coordinate of the real roots of ``cross_attention:curve``; in it

    x(e) = lambda^2 = Delta^2 (e - r1)(e - r2)(e + s1)(e + s2)/((psi rho + e) e^2),

where r > 0 and -s < 0 are the zeros of 1 + N (first pair) and of psi + N (second).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.priors import _DE_COARSEST, _DE_DISTANCE, _DE_WEIGHT, _MOST_INTERVALS, _has_converged

"""KERNELS"""
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
