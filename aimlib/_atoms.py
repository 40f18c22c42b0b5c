r"""Compiled kernels of ``SpectralPrior``: any spectrum made of atoms.

The real part x of the subordination point is the coordinate of choice: :math:`h = v^2`, the density
and the Jacobian :math:`d\lambda/dx` are explicit sums over atoms once the monotone equation for h
(``priors:weights``) is solved.
"""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit


@njit
def height(x: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
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
def curve(
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
def log_potential(x: float, h: float, atoms: np.ndarray, weights: np.ndarray) -> float:
    total = 0.0
    for i in range(atoms.size):
        total += 0.5 * weights[i] * math.log((x - atoms[i]) ** 2 + h)
    return total


@njit
def integrand(x: float, atoms: np.ndarray, weights: np.ndarray, noise: float, kind: int) -> float:
    """Density times Jacobian times the quantity to average (0: one, 1: MMSE, 2: log-potential)."""
    h = height(x, atoms, weights, noise)
    if h <= 0.0:
        return 0.0
    real, denoised, jacobian = curve(x, h, atoms, weights, noise)
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
    potential = log_potential(x, h, atoms, weights)
    return mass * (potential + 0.5 * noise * (real * real - imaginary * imaginary))


@njit
def excess(x: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Delta * sum_i w_i/(x - s_i)^2 - 1, positive inside the support (in the coordinate x)."""
    total = 0.0
    for i in range(atoms.size):
        gap = x - atoms[i]
        if gap == 0.0:
            return math.inf
        total += weights[i] / (gap * gap)
    return noise * total - 1.0


@njit
def bisect_end(
    inside: float, outside: float, atoms: np.ndarray, weights: np.ndarray, noise: float
) -> float:
    for _ in range(200):
        middle = 0.5 * (inside + outside)
        if middle == inside or middle == outside:
            break
        if excess(middle, atoms, weights, noise) > 0.0:
            inside = middle
        else:
            outside = middle
    return inside


@njit
def neck(left: float, right: float, atoms: np.ndarray, weights: np.ndarray) -> float:
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
def intervals(
    atoms: np.ndarray, weights: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of the support in the coordinate x, and the neck of each gap."""
    n = atoms.size
    reach = math.sqrt(noise)
    necks = np.empty(max(n - 1, 0))
    ends = np.empty(2 * n)
    ends[0] = bisect_end(atoms[0], atoms[0] - 1.01 * reach, atoms, weights, noise)
    count = 1
    for i in range(n - 1):
        necks[i] = neck(atoms[i], atoms[i + 1], atoms, weights)
        if excess(necks[i], atoms, weights, noise) < 0.0:
            ends[count] = bisect_end(atoms[i], necks[i], atoms, weights, noise)
            ends[count + 1] = bisect_end(atoms[i + 1], necks[i], atoms, weights, noise)
            count += 2
    ends[count] = bisect_end(atoms[n - 1], atoms[n - 1] + 1.01 * reach, atoms, weights, noise)
    return ends[: count + 1], necks


@njit
def position(lam: float, atoms: np.ndarray, weights: np.ndarray, noise: float) -> float:
    """Invert lambda(x), which increases on the whole line, with |lambda - x| <= sqrt(Delta)."""
    left, right = lam - 1.01 * math.sqrt(noise), lam + 1.01 * math.sqrt(noise)
    # |g|^2 <= 1/Delta, with equality at the edges; the margin is for rounding
    x = lam
    for _ in range(300):
        h = height(x, atoms, weights, noise)
        real, _, jacobian = curve(x, h, atoms, weights, noise)
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
def fill_resolvent(
    lam: np.ndarray,
    atoms: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
    real: np.ndarray,
    imaginary: np.ndarray,
) -> None:
    for i in range(lam.size):
        x = position(lam[i], atoms, weights, noise[i])
        h = height(x, atoms, weights, noise[i])
        real[i], _, _ = curve(x, h, atoms, weights, noise[i])
        imaginary[i] = math.sqrt(h) / noise[i]
