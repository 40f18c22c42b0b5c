r"""Compiled kernels of ``BilinearPrior``: the singular values of a rectangular matrix in noise.

e = P - psi rho is the coordinate of the roots of ``cross_attention:curve``.  In it the square of a
singular value is :math:`\lambda^2 = \Delta^2 X(e)`,

.. math:: X(e) = \frac{(e-r_1)(e-r_2)(e+s_1)(e+s_2)}{(\psi\rho+e)\,e^2},

where r > 0 and -s < 0 are the zeros of 1 + N and of psi + N.  At a singular value of the support
two roots are real, one on each branch: the *inner* one, 0 < e < min(r), and the *outer* one,
e > max(r).  Integrals run along the logarithm of their ratio.
"""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit

# Layout of the parameters of one spectrum, the noise first.
_NOISE, _RHO, _PSI, _POLE, _NEAR, _FAR, _WIDTH, _S1, _S2, _T1, _T2 = range(11)
_TOP, _BOTTOM = 11, 12  # P at the upper and at the lower edge
_FIRST, _LAST = 13, 14  # X there
_OUTER = 15  # 1 where the branch that may fold, and so carries the integrals, is the outer one
_NECK = 16  # e at the fold or the neck of that branch; 0 where there is none
_PEAK, _VALLEY = 17, 18  # e at the fold where X is largest and smallest; 0 without a gap
_GAP, _GAP_RATIO = 19, 20  # X and the coordinate of the integrals in the gap; else infinite
_SIZE = 21
# Coordinates of P: the logit of P/(psi rho), P itself where it is negative, and e.
_LOGIT, _NEGATIVE, _ON_BRANCH = 0, 1, 2


@njit
def _square(e: float, to_near: float, to_far: float, p: np.ndarray) -> float:
    """X at e > 0, at these distances from min(r) and max(r)."""
    return float(to_near * to_far * (e + p[_S1]) * (e + p[_S2]) / ((p[_POLE] + e) * e * e))


@njit
def _slope(e: float, to_near: float, to_far: float, p: np.ndarray) -> float:
    """Derivative of log |X| in log e; the distances are e - r, with their signs."""
    total: float = 1.0 / to_near + 1.0 / to_far - 1.0 / (p[_POLE] + e)
    return float((total + 1.0 / (e + p[_S1]) + 1.0 / (e + p[_S2])) * e - 2.0)


@njit
def _slope_at(e: float, p: np.ndarray) -> float:
    return _slope(e, e - p[_NEAR], e - p[_FAR], p)


@njit
def _branch_square(e: float, p: np.ndarray) -> float:
    return _square(e, abs(e - p[_NEAR]), abs(e - p[_FAR]), p)


@njit
def _square_below(gap: float, point: float, p: np.ndarray) -> float:
    """X at a real P = point = psi rho - gap below psi rho."""
    top: float = (gap + p[_NEAR]) * (gap + p[_FAR]) * (point + p[_T1]) * (point + p[_T2])
    return top / (point * gap * gap)


@njit
def _slope_below(gap: float, point: float, p: np.ndarray) -> float:
    """Derivative of log |X| in P below psi rho."""
    total: float = 1.0 / (point + p[_T1]) + 1.0 / (point + p[_T2]) - 1.0 / point
    return float(total + 2.0 / gap - 1.0 / (gap + p[_NEAR]) - 1.0 / (gap + p[_FAR]))


@njit
def _measure(x: float, place: int, slope: bool, p: np.ndarray) -> float:
    """The slope of log |X|, or X, at one coordinate of P, which ``place`` names."""
    if place == _ON_BRANCH:
        return _slope_at(x, p) if slope else _branch_square(x, p)
    gap, point = p[_POLE] - x, x
    if place == _LOGIT:
        gap, point = p[_POLE] / (1.0 + math.exp(x)), p[_POLE] / (1.0 + math.exp(-x))
    return _slope_below(gap, point, p) if slope else _square_below(gap, point, p)


@njit
def _bisect(
    start: float, end: float, place: int, slope: bool, level: float, p: np.ndarray
) -> float:
    """Where the slope, or X, crosses a level between two coordinates: the last one before it."""
    above = _measure(start, place, slope, p) > level
    for _ in range(200):
        middle = 0.5 * (start + end)
        if middle == start or middle == end:
            break
        if (_measure(middle, place, slope, p) > level) == above:
            start = middle
        else:
            end = middle
    return start


@njit
def _set_zeros(p: np.ndarray) -> None:
    """Zeros of 1 + N and psi + N: r ascending, then s and t = s - psi rho."""
    noise, rho, pole = p[_NOISE], p[_RHO], p[_POLE]
    for i in range(2):
        top = 1.0 if i == 0 else p[_PSI]
        linear = top + noise * pole - rho
        root = math.sqrt(linear * linear + 4.0 * noise * rho * pole)
        if linear > 0.0:
            zero = 2.0 * rho * pole / (linear + root)
        else:
            zero = (root - linear) / (2.0 * noise)
        p[_NEAR + i] = zero
        p[_S1 + i] = rho * pole / (noise * zero)
        p[_T1 + i] = top * pole / (noise * (pole + zero))
    if p[_NEAR] > p[_FAR]:
        p[_NEAR], p[_FAR] = p[_FAR], p[_NEAR]
    p[_WIDTH] = p[_FAR] - p[_NEAR]


@njit
def _set_edges(p: np.ndarray) -> tuple[float, float]:
    """Bisect the edges of the support, in the logit of P/(psi rho) and between -t1 and -t2.

    Returns e at both, which is negative.
    """
    pole = p[_POLE]
    logit = _bisect(-700.0, 700.0, _LOGIT, True, 0.0, p)
    top = pole / (1.0 + math.exp(logit))
    p[_TOP] = pole / (1.0 + math.exp(-logit))
    p[_LAST] = _square_below(top, p[_TOP], p)
    low = _bisect(-max(p[_T1], p[_T2]), -min(p[_T1], p[_T2]), _NEGATIVE, True, 0.0, p)
    p[_BOTTOM] = low
    p[_FIRST] = 0.0 if p[_T1] == p[_T2] else max(_square_below(pole - low, low, p), 0.0)
    return -top, low - pole


@njit
def _guess(square: float, outer: bool, p: np.ndarray) -> float:
    """Start of the iteration for a root: the factor of X that varies least is held fixed, twice."""
    near, far, width, pole = p[_NEAR], p[_FAR], p[_WIDTH], p[_POLE]
    if outer:
        factor, v = 1.0, 0.0
        for _ in range(2):
            reduced = square / factor
            linear = width - reduced
            root = math.sqrt(linear * linear + 4.0 * reduced * far)
            v = 2.0 * reduced * far / (linear + root) if linear > 0.0 else 0.5 * (root - linear)
            e = far + v
            factor = (1.0 + p[_S1] / e) * (e + p[_S2]) / (pole + e)
        return v
    factor, v, ratio = p[_S1] / pole * p[_S2], 0.0, width / near
    for _ in range(2):
        linear = factor * ratio
        v = linear + math.sqrt(linear * linear + 4.0 * square * factor * (1.0 + ratio))
        v /= 2.0 * square
        e = near * v / (1.0 + v)
        factor = (e + p[_S1]) / (pole + e) * (e + p[_S2])
    return v


@njit
def _between(low: float, high: float) -> float:
    """A point of a bracket in (0, inf), where Newton's iteration has left it."""
    if high == math.inf:
        return 4.0 * low
    return 0.25 * high if low == 0.0 else math.sqrt(low * high)


@njit
def _root(square: float, outer: bool, p: np.ndarray) -> tuple[float, float]:
    """Return e with X(e) = square on one branch, and its distance from max(r) or min(r).

    It lies on the side of the gap where square does.  In v = e - max(r) outside and
    v = e/(min(r) - e) inside, log X is nearly linear in log v, so that Newton's iteration takes few
    steps; a bracket keeps it from failing.
    """
    near, far, width = p[_NEAR], p[_FAR], p[_WIDTH]
    if square <= 0.0:
        return (far, 0.0) if outer else (near, 0.0)
    v, low, high = _guess(square, outer, p), 0.0, math.inf
    if p[_PEAK] > 0.0 and outer == (p[_OUTER] > 0.0):
        peak, valley = p[_PEAK], p[_VALLEY]
        below = square < p[_GAP]
        if outer:
            low, high = (0.0, peak - far) if below else (valley - far, math.inf)
        elif below:
            low = peak / (near - peak)
        else:
            high = valley / (near - valley)
    for _ in range(100):
        if not low < v < high:
            v = _between(low, high)
        if outer:
            e = far + v
            value = _square(e, v + width, v, p)
            slope = _slope(e, v + width, v, p) * v / e
        else:
            e = near * v / (1.0 + v)
            gap = near / (1.0 + v)
            value = _square(e, gap, gap + width, p)
            slope = -_slope(e, -gap, -gap - width, p) / (1.0 + v)
        excess = (value - square) / (value + square)  # half the difference of logarithms
        if (excess > 0.0) == outer:
            high = v
        else:
            low = v
        step = -excess / slope if outer else excess / slope
        following = v * (1.0 + step) / (1.0 - step) if slope > 0.0 and abs(step) < 0.9 else -1.0
        is_last = slope > 0.0 and abs(step) < 1e-9
        if is_last or (low > 0.0 and low >= high * (1.0 - 4e-16)):
            v = following if is_last else v
            return (far + v, v) if outer else (near * v / (1.0 + v), near / (1.0 + v))
        v = following
    return (far + v, v) if outer else (near * v / (1.0 + v), near / (1.0 + v))


@njit
def _inside(
    square: float, inner: float, outer: float, gap: float, rise: float, p: np.ndarray
) -> tuple[float, float]:
    """Return k and (Im N)^2 at lambda^2 = Delta^2 square, from the two real roots there.

    The complex roots w = P - psi rho follow in two exact ways, each ill-conditioned somewhere: from
    |1 + N||psi + N| and Re N, or from |w| and Re w, which the reciprocals of all roots sum to.
    """
    noise, rho, psi, pole = p[_NOISE], p[_RHO], p[_PSI], p[_POLE]
    k = noise * inner * (noise * outer) / (psi * rho * rho)
    size = math.sqrt(psi / (pole + inner)) * math.sqrt(psi / (pole + outer))
    product = noise * square * math.sqrt(psi) * rho * size  # |1 + N||psi + N| = lambda^2 |P|
    u, c = 0.5 * noise * square * (noise / (k + noise)), 0.5 * (1.0 - psi)
    difference = abs(u - c) * abs(u + c)
    first = (product - difference) * (product + difference)
    radius = rho * math.sqrt(psi / k)  # |w|
    up, down = rise / outer / p[_FAR], gap / inner / p[_NEAR] + 1.0 / p[_S1] + 1.0 / p[_S2]
    cosine = 0.5 * radius * (up - down)
    second = (1.0 - cosine) * (1.0 + cosine)
    lost, lost_otherwise = product * (u * u + c * c + product), radius * (up + down) * abs(cosine)
    if second * lost > first * (1.0 + lost_otherwise):
        return k, max(second, 0.0) * ((k + noise) * radius) ** 2
    first = max(first, 0.0)
    return k, first / (u * u + c * c + math.sqrt(4.0 * (u * c) ** 2 + product * product))


@njit
def _pair(log_ratio: float, p: np.ndarray) -> tuple[float, float, float, float]:
    """Return the inner and the outer root of this ratio, and their distances from min and max(r).

    X takes the same value at both, and that it does fixes one of them.  The iteration is that of
    :func:`_root`, in v = (e - e0)/(min(r) - e), with e0 where the outer root would be max(r).
    """
    near, far, width = p[_NEAR], p[_FAR], p[_WIDTH]
    m, least = far / near * math.exp(log_ratio), near * math.exp(-log_ratio)
    start, end = least, near
    if p[_PEAK] > 0.0:
        peak, valley, below = p[_PEAK], p[_VALLEY], log_ratio < p[_GAP_RATIO]
        if p[_OUTER] > 0.0:
            start, end = (start, min(end, peak / m)) if below else (max(start, valley / m), end)
        else:
            start, end = (max(start, peak), end) if below else (start, min(end, valley))
    span, lead, tail = end - start, start - least, near - end
    if lead == 0.0 and tail == 0.0:
        span = -near * math.expm1(-log_ratio)  # which may be small
    v, low, high, is_last = 1.0, 0.0, math.inf, False
    for _ in range(100):
        inner = (start + end * v) / (1.0 + v)
        outer = inner * m
        gap, rise = tail + span / (1.0 + v), m * (lead + span * v / (1.0 + v))
        if is_last:
            break
        first = _square(inner, gap, gap + width, p)
        second = _square(outer, rise + width, rise, p)
        excess = (second - first) / (second + first)  # half the difference of logarithms
        slope = _slope(outer, rise + width, rise, p) - _slope(inner, -gap, -gap - width, p)
        slope *= span * v / (1.0 + v) ** 2 / inner
        if excess > 0.0:
            high = v
        else:
            low = v
        step = -excess / slope
        if slope > 0.0 and abs(step) < 0.9:
            v *= (1.0 + step) / (1.0 - step)
            is_last = abs(step) < 1e-8
        if not (low < v < high or is_last):
            v = _between(low, high)
            is_last = v == low or v == high
    return inner, outer, gap, rise


@njit
def integrand(log_ratio: float, p: np.ndarray, kind: int) -> float:
    """Density times quantity to average times d(lambda)/d(log_ratio).

    The coordinate is the logarithm of the ratio of roots over max(r)/min(r).  It grows with lambda,
    resolves necks, and where d = d' it is odd in lambda, as which the density is even.
    The quantity is, for kind 0: one, 1: MMSE/Delta.
    """
    noise = p[_NOISE]
    inner, outer, gap, rise = _pair(max(abs(log_ratio), 1e-40), p)
    square = _square(outer, rise + p[_WIDTH], rise, p)
    k, imaginary = _inside(square, inner, outer, gap, rise, p)
    if imaginary <= 0.0:
        return 0.0
    # 2 |Im N|/(pi lambda) times d(lambda)/d(log_ratio)
    slopes = 1.0 / _slope(outer, rise + p[_WIDTH], rise, p)
    slopes -= 1.0 / _slope(inner, -gap, -gap - p[_WIDTH], p)
    value: float = math.sqrt(imaginary) / (math.pi * slopes)
    if p[_PSI] == 1.0 and square < p[_GAP]:
        value *= 0.5  # lambda runs from minus to plus the edge
    if kind == 0:
        return value
    share = noise / (k + noise)  # mu D (lambda - D)/Delta
    return float(value * square * share * share * k)


@njit
def _log_ratio(square: float, p: np.ndarray) -> float:
    """Coordinate of the integrals, with its relative accuracy near zero."""
    (_, rise), (inner, gap) = _root(square, True, p), _root(square, False, p)
    below = -math.log1p(-gap / p[_NEAR]) if 2.0 * gap < p[_NEAR] else math.log(p[_NEAR] / inner)
    return math.log1p(rise / p[_FAR]) + below


@njit
def parameters(rho: float, psi: float, noise: float) -> np.ndarray:
    """Everything about one spectrum that the other kernels need.

    X has five critical points: one at each edge, one between r1 and r2, and a pair.  The pair
    bounds a gap of the support where it is real, and marks a neck where it is complex.  The product
    of all five is a coefficient of their quintic, so that the modulus of the pair keeps its digits.
    """
    p = np.zeros(_SIZE)
    p[_NOISE], p[_RHO], p[_PSI], p[_POLE] = noise, rho, psi, psi * rho
    _set_zeros(p)
    top, bottom = _set_edges(p)
    near, far = p[_NEAR], p[_FAR]
    tiny = 1e-15 * p[_WIDTH]
    between = near if near == far else _bisect(near + tiny, far - tiny, _ON_BRANCH, True, 0.0, p)
    product = 2.0 * p[_POLE] * (near / between) * (far / top) * (p[_S1] / bottom) * p[_S2]
    neck = math.sqrt(product)
    p[_GAP] = p[_GAP_RATIO] = math.inf
    if near <= neck <= far:
        return p
    p[_NECK] = neck
    p[_OUTER] = 1.0 if neck > far else 0.0
    sign = 1.0 if neck > far else -1.0
    if sign * _slope_at(neck, p) < 0.0:  # X turns back: the support has a gap
        p[_PEAK] = _bisect(neck, far if neck > far else near, _ON_BRANCH, True, 0.0, p)
        p[_VALLEY] = product / p[_PEAK]
        below, above = _branch_square(p[_VALLEY], p), _branch_square(p[_PEAK], p)
        p[_GAP] = math.sqrt(below * above)
        p[_GAP_RATIO] = 0.5 * (_log_ratio(below, p) + _log_ratio(above, p))
    return p


@njit
def intervals(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the support in the logarithm of the ratio of roots, and its necks.

    Where d = d' the lowest part starts at zero and is taken from minus to plus its edge.
    """
    ends, necks = np.empty(4 if p[_PEAK] > 0.0 else 2), np.empty(0)
    last = p[_LAST]
    if p[_PEAK] > 0.0:
        ends[2] = _log_ratio(_branch_square(p[_PEAK], p), p)
        ends[3] = _log_ratio(last, p)
        last = _branch_square(p[_VALLEY], p)
    elif p[_NECK] > 0.0:
        necks = np.empty(2)
        necks[1] = _log_ratio(_branch_square(p[_NECK], p), p)
        necks[0] = -necks[1]
    ends[1] = _log_ratio(last, p)
    ends[0] = -ends[1] if p[_PSI] == 1.0 else _log_ratio(p[_FIRST], p)
    return ends, necks


@njit
def find_edges(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the support, ascending, and P at each."""
    count = 4 if p[_PEAK] > 0.0 else 2
    squares, points = np.empty(count), np.empty(count)
    squares[0], points[0] = p[_FIRST], p[_BOTTOM]
    squares[-1], points[-1] = p[_LAST], p[_TOP]
    if count == 4:
        squares[1], points[1] = _branch_square(p[_VALLEY], p), p[_POLE] + p[_VALLEY]
        squares[2], points[2] = _branch_square(p[_PEAK], p), p[_POLE] + p[_PEAK]
    return p[_NOISE] * np.sqrt(squares), points


@njit
def fill_density(lam: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    """Fill the density of the singular values, of mass min(1, psi); its limit at zero."""
    edges, _ = find_edges(p)
    for i in range(lam.size):
        value = max(lam[i], 1e-9 * edges[-1]) if lam[i] >= 0.0 else -1.0
        out[i] = 0.0
        for j in range(0, edges.size, 2):
            if edges[j] < value < edges[j + 1]:
                square = (value / p[_NOISE]) ** 2
                (inner, gap), (outer, rise) = _root(square, False, p), _root(square, True, p)
                _, imaginary = _inside(square, inner, outer, gap, rise, p)
                out[i] = 2.0 / math.pi * math.sqrt(imaginary) / value


@njit
def _outside_point(square: float, side: int, p: np.ndarray) -> float:
    """The physical real P below (-1), above (1) or in the gap of the support: X is monotone."""
    pole = p[_POLE]
    if side > 0:
        highest = math.log(p[_TOP] / (pole - p[_TOP]))
        return float(pole / (1.0 + math.exp(-_bisect(-700.0, highest, _LOGIT, False, square, p))))
    if side < 0:
        nearest = -p[_T1] if p[_PSI] > 1.0 else -p[_T2]
        return _bisect(nearest, p[_BOTTOM], _NEGATIVE, False, square, p)
    return float(pole + _bisect(p[_PEAK], p[_VALLEY], _ON_BRANCH, False, square, p))


@njit
def _velocity(point: float, lam: float, p: np.ndarray) -> float:
    """s = a + b = (1 + psi + 2 N)/lambda at a real P."""
    if lam == 0.0:
        return 0.0
    n = p[_RHO] * point / (p[_POLE] - point) + p[_NOISE] * point
    return float((1.0 + p[_PSI] + 2.0 * n) / lam)


@njit
def fill_shrunk(lam: np.ndarray, p: np.ndarray, hold: bool, out: np.ndarray) -> None:
    """Fill D(lambda); outside the support follow the resolvents, or hold the shift at the edge."""
    noise = p[_NOISE]
    edges, points = find_edges(p)
    for i in range(lam.size):
        part = np.searchsorted(edges, lam[i])
        square = (lam[i] / noise) ** 2
        if lam[i] == 0.0 and (edges[0] == 0.0 or not hold):
            out[i] = 0.0
        elif part % 2 == 1 and lam[i] < edges[part]:
            k = noise * _root(square, False, p)[0] * (noise * _root(square, True, p)[0])
            k /= p[_PSI] * p[_RHO] ** 2
            out[i] = lam[i] * (k / (k + noise))
        elif hold:
            best = np.argmin(np.abs(edges - lam[i]))
            out[i] = lam[i] - noise * _velocity(points[best], edges[best], p)
        else:
            side = -1 if part == 0 else 1 if lam[i] >= edges[-1] else 0
            out[i] = lam[i] - noise * _velocity(_outside_point(square, side, p), lam[i], p)
            if lam[i] < edges[0]:  # the resolvents diverge at zero, where d and d' differ
                out[i] = max(out[i], 0.0)
