r"""Compiled kernels of ``WishartPrior``: a cubic resolvent.

Inside the bulk the third root g3 of ``priors:cubic`` is real, and the coefficients of the cubic
give the denoiser :math:`D = \Delta(g_3-\sqrt\rho) =: \Delta e`, then :math:`|g|^2` and Re g.
"""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit


@njit
def inverse_resolvent(s: float, rho: float, noise: float) -> float:
    """z(s) = 1/s + Delta s + sqrt(rho)/(1 - s/sqrt(rho)) for real s (priors:cubic)."""
    root = math.sqrt(rho)
    return 1.0 / s + noise * s + rho / (root - s)


@njit
def solve_edge(inside: float, outside: float, rho: float, noise: float) -> float:
    """Solve Phi(s) = Delta s^2 + rho s^2/(sqrt(rho) - s)^2 = 1, the condition of an edge.

    Phi < 1 at ``inside``, outside the spectrum, and Phi > 1 at ``outside``, the start.  Newton's
    iteration is on Phi^(-1/2), which is nearly linear where Phi has a pole or grows like a square;
    a step that leaves the bracket is replaced by its middle.
    """
    root = math.sqrt(rho)
    s = outside
    for _ in range(200):
        y = root * s / (root - s)
        value = noise * s * s + y * y
        if value < 1.0:
            inside = s
        else:
            outside = s
        if abs(value - 1.0) <= 2e-16:
            return s  # nothing but rounding is left
        slope = 2.0 * (noise * s + y * y / s * (root / (root - s)))
        following = s + 2.0 * value * (1.0 - math.sqrt(value)) / slope
        if not min(inside, outside) < following < max(inside, outside):
            following = 0.5 * (inside + outside)
            if following == inside or following == outside:
                return inside
        if abs(following - s) <= 2e-16 * abs(s):
            return following
        s = following
    return s


@njit
def find_edges(rho: float, noise: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of bulks, the edges in z (ascending) and the resolvent at each edge."""
    root = math.sqrt(rho)
    points = np.empty(4)
    widest = 1.0 / math.sqrt(noise)
    points[0] = solve_edge(
        0.0, -min(widest, root / (root - 1.0) if root > 1.0 else widest), rho, noise
    )
    points[3] = solve_edge(0.0, min(widest, root / (1.0 + root)), rho, noise)
    cube = noise ** (1.0 / 3.0)
    bulks = 1
    if rho * (1.0 + cube) ** 3 < 1.0:  # the minimum of Phi beyond sqrt(rho), in closed form
        bulks = 2
        narrow = root * (1.0 + 1.0 / cube)
        points[1] = solve_edge(narrow, widest, rho, noise)
        points[2] = solve_edge(narrow, root, rho, noise)
    if bulks == 1:
        points[1] = points[3]
    count = 2 * bulks
    edges = np.empty(count)
    for k in range(count):
        edges[k] = inverse_resolvent(points[k], rho, noise)
    return bulks, edges, points[:count]


@njit
def third_root(lam: float, rho: float, noise: float, low: float, high: float) -> float:
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
def resolvent_at(lam: float, e: float, rho: float, noise: float) -> tuple[float, float]:
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
def inside(
    lam: float, rho: float, noise: float, low: float, high: float
) -> tuple[float, float, float]:
    """Return (Re g, -Im g, D) at an eigenvalue inside a bulk."""
    e = third_root(lam, rho, noise, low, high)
    real, square = resolvent_at(lam, e, rho, noise)
    return real, math.sqrt(max(square - real * real, 0.0)), noise * e


@njit
def bracket(bulk: int, bulks: int, rho: float, noise: float) -> tuple[float, float]:
    """Bracket of e = g3 - sqrt(rho) for the eigenvalues of one bulk."""
    if bulks == 1:
        return 0.0, math.inf
    turning = math.sqrt(rho) / noise ** (1.0 / 3.0)
    return (0.0, turning) if bulk == 0 else (turning, math.inf)


@njit
def outside(
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
        if inverse_resolvent(middle, rho, noise) > lam:  # z decreases on the interval
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


@njit
def locate(lam: float, edges: np.ndarray) -> int:
    """Index of the interval of the support that holds lam, or -1."""
    for k in range(edges.size // 2):
        if edges[2 * k] < lam < edges[2 * k + 1]:
            return k
    return -1


@njit
def fill_resolvent(
    lam: np.ndarray, rho: float, noise: np.ndarray, real: np.ndarray, imaginary: np.ndarray
) -> None:
    """Fill Re g and -Im g for flat arrays of eigenvalues and noises."""
    last = -1.0
    bulks, edges, points = 1, np.empty(2), np.empty(2)
    for i in range(lam.size):
        if noise[i] != last:
            bulks, edges, points = find_edges(rho, noise[i])
            last = noise[i]
        k = locate(lam[i], edges)
        if k >= 0:
            low, high = bracket(k, bulks, rho, noise[i])
            real[i], imaginary[i], _ = inside(lam[i], rho, noise[i], low, high)
        else:
            real[i] = outside(lam[i], rho, noise[i], bulks, edges, points)
            imaginary[i] = 0.0


@njit
def fill_shrunk(lam: np.ndarray, rho: float, noise: float, hold: bool, out: np.ndarray) -> None:
    """Fill D(lambda); outside the support follow the resolvent, or hold Re g at its edge value."""
    bulks, edges, points = find_edges(rho, noise)
    for i in range(lam.size):
        k = locate(lam[i], edges)
        if k >= 0:
            low, high = bracket(k, bulks, rho, noise)
            _, _, out[i] = inside(lam[i], rho, noise, low, high)
        elif hold:
            nearest = np.argmin(np.abs(edges - lam[i]))
            out[i] = lam[i] - 2.0 * noise * points[nearest]
        else:
            g = outside(lam[i], rho, noise, bulks, edges, points)
            out[i] = lam[i] - 2.0 * noise * g


@njit
def intervals(rho: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the bulks in log e, and the point where two of them merge."""
    _, _, ends = find_edges(rho, noise)
    root = math.sqrt(rho)
    for k in range(ends.size):
        # the third root at an edge, where the others equal s: e = rho^{3/2}/(Delta (root - s)^2)
        ends[k] = math.log(rho * root / noise) - 2.0 * math.log(abs(root - ends[k]))
    necks = np.empty(1)
    necks[0] = 0.5 * math.log(rho) - math.log(noise) / 3.0
    return ends, necks


@njit
def integrand(log_e: float, rho: float, noise: float, kind: int) -> float:
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
    real, square = resolvent_at(lam, e, rho, noise)
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
