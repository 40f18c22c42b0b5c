r"""Three tokens or more, seen through tokens drawn from the softmax.

The posterior of the indices is log-concave in :math:`T(T+1)/2` dimensions.  Newton's iteration
finds its top; around it, points of a quasi-Monte Carlo sequence, drawn from a Gaussian a little
wider than the curvature there and weighted, give its mean.  The information averages the squares of
such means, with the Fisher information of the same draws, whose mean is known, to take most of the
noise away.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray

_WIDER = 1.15  # the Gaussian that points are drawn from, over the curvature at the top
_POINTS = 256  # and as many mirrored ones
_INNER = 64  # points that an average over sequences needs
_OUTER, _REPEATS = 1024, 8  # sequences in one repetition of an average over sequences
_KNOTS = 8


@functools.lru_cache(maxsize=8)
def points_for(tokens: int, count: int = _POINTS) -> FloatArray:
    """Standard normal points, and their mirror images, shape (2 n, T(T+1)/2)."""
    half = _normal_points(tokens * (tokens + 1) // 2, count, 0)
    return np.concatenate([half, -half])


def _normal_points(size: int, count: int, seed: int) -> FloatArray:
    from scipy.stats import qmc  # half a second of import that few sessions need

    law = qmc.MultivariateNormalQMC(np.zeros(size), rng=np.random.default_rng(seed))
    return np.asarray(law.random(count))


# ---------------------------------------------------------------------------------------------
# The posterior mean
# ---------------------------------------------------------------------------------------------


@njit
def _derivatives(
    h: np.ndarray, y: np.ndarray, beta: float, draws: int, slope: np.ndarray, p: np.ndarray
) -> float:
    """Return the log-likelihood of an h; fill its derivative in h_ab = h_ba, and the softmax."""
    t = h.shape[0]
    value = 0.0
    for a in range(t):
        top, total = h[a].max(), 0.0
        for b in range(t):
            p[a, b] = math.exp(beta * (h[a, b] - top))
            total += p[a, b]
        for b in range(t):
            p[a, b] /= total
            value += y[a, b] * beta * (h[a, b] - top)
        value -= draws * math.log(total)
    for a in range(t):
        for b in range(t):
            slope[a, b] = beta * (y[a, b] - draws * p[a, b])
            if b != a:
                slope[a, b] += beta * (y[b, a] - draws * p[b, a])
    return value


@njit
def _place(z: np.ndarray, omega: np.ndarray, deviation: float, h: np.ndarray) -> float:
    """Fill h = omega + deviation sqrt(1 + delta_ab) z_ab; return minus half the square of z."""
    k, squares = 0, 0.0
    for a in range(omega.shape[0]):
        for b in range(a, omega.shape[0]):
            scale = deviation * math.sqrt(2.0) if a == b else deviation
            h[a, b] = h[b, a] = omega[a, b] + scale * z[k]
            squares += z[k] * z[k]
            k += 1
    return -0.5 * squares


@njit
def _curvature(p: np.ndarray, beta: float, draws: int, deviation: float, out: np.ndarray) -> None:
    """Fill the precision in z: one for the prior, and the covariances of the rows."""
    t = p.shape[0]
    out[:, :] = np.eye(out.shape[0])
    position = np.empty((t, t), dtype=np.int64)
    k = 0
    for a in range(t):
        for b in range(a, t):
            position[a, b] = position[b, a] = k
            k += 1
    for a in range(t):
        for b in range(t):
            left = deviation * beta * (math.sqrt(2.0) if a == b else 1.0)
            for c in range(t):
                right = deviation * beta * (math.sqrt(2.0) if a == c else 1.0)
                spread = (p[a, b] if b == c else 0.0) - p[a, b] * p[a, c]
                out[position[a, b], position[a, c]] += draws * left * right * spread


@njit
def _flat(slope: np.ndarray, deviation: float, z: np.ndarray) -> np.ndarray:
    """The slope in z of log-likelihood and prior."""
    out = -z
    k = 0
    for a in range(slope.shape[0]):
        for b in range(a, slope.shape[0]):
            out[k] += deviation * (math.sqrt(2.0) if a == b else 1.0) * slope[a, b]
            k += 1
    return out


@njit
def fill_means(
    y: np.ndarray, omega: np.ndarray, variance: float, beta: float, draws: int, points: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Fill E[h | y] for n sequences, counts and omega of shape (n, T, T)."""
    t, size = omega.shape[1], points.shape[1]
    deviation = math.sqrt(variance)
    h, slope, p = np.empty((t, t)), np.empty((t, t)), np.empty((t, t))
    precision = np.empty((size, size))
    levels, moved = np.empty(points.shape[0]), np.empty(points.shape)
    for s in range(omega.shape[0]):
        z = np.zeros(size)
        value = _place(z, omega[s], deviation, h) + _derivatives(h, y[s], beta, draws, slope, p)
        for _ in range(60):
            _curvature(p, beta, draws, deviation, precision)
            direction = np.linalg.solve(precision, _flat(slope, deviation, z))
            gain = (_flat(slope, deviation, z) * direction).sum()
            share, best, following = 1.0, value, z
            while share > 1e-6:
                following = z + share * direction
                best = _place(following, omega[s], deviation, h)
                best += _derivatives(h, y[s], beta, draws, slope, p)
                if best >= value:
                    break
                share *= 0.5
            z, value = following, best
            if gain < 1e-4:
                break
        _curvature(p, beta, draws, deviation, precision)
        factor = np.linalg.inv(np.linalg.cholesky(precision))  # L^-T maps to the curvature
        for k in range(points.shape[0]):
            for i in range(size):
                total = 0.0
                for j in range(i, size):
                    total += factor[j, i] * points[k, j]
                moved[k, i] = z[i] + _WIDER * total
            levels[k] = _place(moved[k], omega[s], deviation, h)
            levels[k] += _derivatives(h, y[s], beta, draws, slope, p)
            levels[k] += 0.5 * (points[k] * points[k]).sum()
        top = levels.max()
        mass, mean = 0.0, np.zeros(size)
        for k in range(points.shape[0]):
            weight = math.exp(levels[k] - top)
            mass += weight
            mean += weight * moved[k]
        _place(mean / mass, omega[s], deviation, out[s])


# ---------------------------------------------------------------------------------------------
# The information, in units in which Q = 1
# ---------------------------------------------------------------------------------------------


def fisher_information(tokens: int, beta: float) -> float:
    r"""Return s per draw at Q = 1 (``sampled_tokens:fisher``), to about 1e-10.

    With :math:`1/Z=\int e^{-\lambda Z}d\lambda` every index of a row is averaged by itself:
    :math:`E\,p_b=\int E[e^{\beta h_b}e^{-\lambda e^{\beta h_b}}]\prod_{c\ne b}M_c\,d\lambda`.
    """
    widths = beta * np.array([math.sqrt(2.0), 1.0])  # the diagonal index, and any other
    step = 0.25 * max(1.0, beta)
    reach = 9.0 * widths[0]
    x = np.arange(-reach - 40.0, reach + 8.0, step)  # log lambda
    fine = np.linspace(-9.0, 9.0, 2 * math.ceil(9.0 / min(0.4, 0.28 / beta)) + 1)
    gauss = np.exp(-0.5 * fine**2)
    gauss /= gauss.sum()
    moments = []
    for width in widths:
        rate = np.exp(np.minimum(x[:, None] + width * fine, 300.0))
        decay = np.exp(-rate)
        moments.append([decay @ gauss, (rate * decay) @ gauss, (rate * rate * decay) @ gauss])
    (m0, m1, m2), (o0, o1, o2) = moments
    others = tokens - 1
    diagonal = step * np.sum(m1 * o0**others) - step * np.sum(m2 * o0**others)
    rest = m0 * o0 ** (others - 1)
    off = step * np.sum(o1 * rest) - step * np.sum(o2 * rest)
    return float(beta**2 * tokens * (2.0 * diagonal + others * off))


def _one_average(
    x: float, tokens: int, beta: float, draws: int, fisher: float, seed: int
) -> float:
    """c/V over sequences: squares of posterior means, corrected by those of the score at h."""
    size = tokens * (tokens + 1) // 2
    rows, columns = np.triu_indices(tokens)
    normal = _normal_points(2 * size, _OUTER, seed)
    rng = np.random.default_rng(seed)
    scale = np.sqrt(1.0 + (rows == columns))
    omega, h = np.empty((2, _OUTER, tokens, tokens))
    known = math.sqrt(max(1.0 - x, 0.0)) * scale * normal[:, :size]
    omega[:, rows, columns] = omega[:, columns, rows] = known
    full = known + math.sqrt(x) * scale * normal[:, size:]
    h[:, rows, columns] = h[:, columns, rows] = full
    y, p = draw_counts(h, beta, draws, rng)
    mean = np.empty_like(h)
    fill_means(y, omega, x, beta, draws, points_for(tokens, _INNER), mean)
    score = beta * (y - draws * p)
    score = score + (1.0 - np.eye(tokens)) * score.transpose(0, 2, 1)
    weights = np.triu(1.0 + np.eye(tokens))
    shift = (mean - omega) / ((1.0 + np.eye(tokens)) * x)
    found = np.sum(weights * shift**2, axis=(1, 2))
    control = np.sum(weights * score**2, axis=(1, 2))
    slope = np.cov(found, control)[0, 1] / np.var(control, ddof=1)
    return float(found.mean() - slope * (control.mean() - fisher))


def draw_counts(
    h: FloatArray, beta: float, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return counts of tokens drawn from the softmax of each row, and the softmax."""
    from aimlib._softmax import row_softmax

    p = row_softmax(h, beta)
    return rng.multinomial(draws, p).astype(np.float64), p


@functools.lru_cache(maxsize=32)
def series(tokens: int, beta: float, draws: int) -> tuple[np.polynomial.Polynomial, float]:
    """Return log c/(s V) as a polynomial in :func:`coordinate`, and the relative error of c.

    The error is twice the standard error over repetitions, plus what the fit leaves.
    """
    fisher = draws * fisher_information(tokens, beta)
    grid = np.arange(1, _KNOTS + 1) / _KNOTS
    values = np.array(
        [
            [_one_average(x, tokens, beta, draws, fisher, seed) for seed in range(_REPEATS)]
            for x in from_coordinate(grid, fisher, beta)
        ]
    )
    mean = values.mean(axis=1) / fisher
    spread = values.std(axis=1, ddof=1) / fisher / math.sqrt(_REPEATS)
    powers = grid[:, None] ** np.arange(1, 5)
    fit = np.linalg.lstsq(powers, np.log(mean), rcond=None)[0]
    left = powers @ fit - np.log(mean)
    error = 2.0 * float(np.max(spread / mean)) + float(np.sqrt(np.mean(left**2)))
    return np.polynomial.Polynomial(np.append(0.0, fit)), error


def coordinate(x: Any, fisher: float, beta: float) -> Any:
    """Map V/Q from [0, 1] to [0, 1]; inside are the V that make an output uncertain, and known."""
    scale = 1.0 + beta * beta + fisher
    return np.log1p(scale * x) / math.log1p(scale)


def from_coordinate(t: Any, fisher: float, beta: float) -> Any:
    """The inverse of :func:`coordinate`."""
    scale = 1.0 + beta * beta + fisher
    return np.minimum(np.expm1(t * math.log1p(scale)) / scale, 1.0)
