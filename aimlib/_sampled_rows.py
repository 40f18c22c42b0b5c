r"""Three tokens or more, seen through tokens drawn from the softmax.

The rows share indices, and every row divides by the sum of its exponentials.  With one positive
number for each row, :math:`Z^{-m}=\int\lambda^{m-1}e^{-\lambda Z}d\lambda/\Gamma(m)`, the indices
come apart (``sampled_tokens:race``): given all :math:`\lambda_a` they are independent, and an index
sees :math:`\lambda_a+\lambda_b` alone.  Each is averaged by one function of one variable,

.. math:: \Phi(x) = E_z\exp(-e^{x+\beta\sigma z}),\qquad x=\log(\lambda_a+\lambda_b)+\beta\omega',

which is tabulated, and what is left is a sum over T logarithms of :math:`\lambda`, log-concave.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from aimlib._compile import njit
from aimlib._softmax import row_softmax
from aimlib._validation import FloatArray

_TABLE = 0.02  # step of the table of log Phi, over the width of Phi
_DEEP = 17.0  # nats below the top where the sum over log lambda ends
_OUTER, _REPEATS = 256, 8  # sequences in one repetition of an average over sequences
_KNOTS = 6


# ---------------------------------------------------------------------------------------------
# The posterior mean
# ---------------------------------------------------------------------------------------------


@njit
def _fill_table(start: float, h: float, width: float, out: np.ndarray) -> None:
    """Fill log Phi and its first two derivatives at start, start + h, ..., shape (n, 3)."""
    for k in range(out.shape[0]):
        x = start + h * k
        z = 0.0  # the top of -z^2/2 - exp(x + width z), at which z + width exp(x + width z) = 0
        low, high = -math.sqrt(2.0 * max(x, 0.0) + 60.0) - width - max(x, 0.0) / width, 0.0
        for _ in range(80):
            z = 0.5 * (low + high)
            if z + width * math.exp(min(x + width * z, 300.0)) > 0.0:
                high = z
            else:
                low = z
        rate = math.exp(x + width * z)
        top = -0.5 * z * z - rate
        step = 0.5 / math.sqrt(1.0 + width * width * (1.0 + rate))
        n = math.ceil(8.6 / step)
        mass, first, second = 0.0, 0.0, 0.0
        for i in range(-n, n + 1):
            s = z + step * i
            r = math.exp(min(x + width * s, 300.0))
            weight = math.exp(-0.5 * s * s - r - top)
            mass += weight
            first -= weight * r
            second += weight * (r * r - r)
        first /= mass
        out[k, 0] = top + math.log(mass * step / math.sqrt(2.0 * math.pi))
        out[k, 1] = first
        out[k, 2] = second / mass - first * first


@njit
def _look_up(x: float, start: float, h: float, table: np.ndarray) -> tuple[float, float, float]:
    """log Phi and its derivatives by the Taylor polynomials of the two nearest knots, blended."""
    if x <= start:
        return 0.0, 0.0, 0.0
    k = min(int((x - start) / h), table.shape[0] - 2)
    t = (x - start) / h - k
    blend = t * t * t * (10.0 - 15.0 * t + 6.0 * t * t)
    left, right = h * t, h * (t - 1.0)
    a = table[k, 0] + left * (table[k, 1] + 0.5 * left * table[k, 2])
    b = table[k + 1, 0] + right * (table[k + 1, 1] + 0.5 * right * table[k + 1, 2])
    da = table[k, 1] + left * table[k, 2]
    db = table[k + 1, 1] + right * table[k + 1, 2]
    second = (1.0 - blend) * table[k, 2] + blend * table[k + 1, 2]
    return (1.0 - blend) * a + blend * b, (1.0 - blend) * da + blend * db, second


@njit
def _log_sum(a: float, b: float) -> float:
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@njit
def _level(
    tau: np.ndarray, centre: np.ndarray, draws: int, start: float, steps: np.ndarray,
    tables: np.ndarray, slope: np.ndarray, curvature: np.ndarray,
) -> float:  # fmt: skip
    """Log-weight of a point log lambda; fill its gradient and minus its second derivatives."""
    t = tau.size
    value = draws * tau.sum()
    slope[:] = draws
    curvature[:, :] = 0.0
    for a in range(t):
        f, d, dd = _look_up(tau[a] + centre[a, a], start, steps[1], tables[1])
        value += f
        slope[a] += d
        curvature[a, a] -= dd
        for b in range(a):
            f, d, dd = _look_up(_log_sum(tau[a], tau[b]) + centre[a, b], start, steps[0], tables[0])
            share = 1.0 / (1.0 + math.exp(tau[b] - tau[a]))
            value += f
            slope[a] += d * share
            slope[b] += d * (1.0 - share)
            bend = d * share * (1.0 - share)
            curvature[a, a] -= dd * share * share + bend
            curvature[b, b] -= dd * (1.0 - share) ** 2 + bend
            curvature[a, b] -= dd * share * (1.0 - share) - bend
            curvature[b, a] = curvature[a, b]
    return float(value)


@njit
def _top(
    tau: np.ndarray, centre: np.ndarray, draws: int, start: float, steps: np.ndarray,
    tables: np.ndarray, slope: np.ndarray, curvature: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Newton's iteration for the top of a concave log-weight, with shorter steps where needed."""
    value = _level(tau, centre, draws, start, steps, tables, slope, curvature)
    for _ in range(200):
        move = np.linalg.solve(curvature, slope)
        gain, share = (slope * move).sum(), min(1.0, 4.0 / max(np.abs(move).max(), 1e-300))
        while True:
            following = tau + share * move
            found = _level(following, centre, draws, start, steps, tables, slope, curvature)
            if found >= value or share < 1e-6:
                break
            share *= 0.5
        tau, value = following, found
        if gain < 1e-4:
            break
    return tau


@njit
def fill_means(
    y: np.ndarray, omega: np.ndarray, variance: float, beta: float, draws: int, h: float,
    start: float, steps: np.ndarray, tables: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill E[h | y] for n sequences, counts and omega of shape (n, T, T)."""
    t = omega.shape[1]
    slope, curvature = np.empty(t), np.empty((t, t))
    for s in range(omega.shape[0]):
        tilted = np.empty((t, t))
        for a in range(t):
            for b in range(t):
                count, spread = y[s, a, b] + y[s, b, a], variance
                if a == b:
                    count, spread = y[s, a, a], 2.0 * variance
                tilted[a, b] = omega[s, a, b] + beta * count * spread
        centre = beta * tilted
        tau = np.empty(t)
        for a in range(t):
            tau[a] = math.log(draws) - centre[a].max() - 1.0
        tau = _top(tau, centre, draws, start, steps, tables, slope, curvature)
        low, high = np.empty(t, dtype=np.int64), np.empty(t, dtype=np.int64)
        value = _level(tau, centre, draws, start, steps, tables, slope, curvature)
        inverse = np.linalg.inv(curvature)
        for a in range(t):
            wider = 1.8 * math.sqrt(max(inverse[a, a] * curvature[a, a], 1.0))  # than along an axis
            for sign in (-1, 1):
                moved, i = tau.copy(), 0
                while True:
                    i += sign
                    moved[a] = tau[a] + h * i
                    level = _level(moved, centre, draws, start, steps, tables, slope, curvature)
                    if level < value - _DEEP:
                        break
                if sign < 0:
                    low[a] = math.floor(wider * i)
                else:
                    high[a] = math.ceil(wider * i)
        pulls = _sum_over_rows(tau, centre, h, low, high, start, steps, tables)
        for a in range(t):
            for b in range(t):
                spread = 2.0 * variance if a == b else variance
                out[s, a, b] = tilted[a, b] + beta * spread * pulls[a, b]


@njit
def _sum_over_rows(
    tau: np.ndarray, centre: np.ndarray, h: float, low: np.ndarray, high: np.ndarray,
    start: float, steps: np.ndarray, tables: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Mean of d log Phi/dx of every index over the grid of log lambda around its top.

    The slopes of all factors cancel at the top, and each is taken without its own: concave
    logarithms then leave every factor at most one.
    """
    t = tau.size
    size = 0
    for a in range(t):
        size = max(size, high[a] - low[a] + 1)
    factor, pull = np.ones((t, t, size, size)), np.zeros((t, t, size, size))
    for a in range(t):
        base, tangent, _ = _look_up(tau[a] + centre[a, a], start, steps[1], tables[1])
        for i in range(high[a] - low[a] + 1):
            x = h * (low[a] + i)
            f, d, _ = _look_up(tau[a] + x + centre[a, a], start, steps[1], tables[1])
            factor[a, a, i, 0], pull[a, a, i, 0] = math.exp(f - base - tangent * x), d
        for b in range(a):
            shift = centre[a, b]
            both = _log_sum(tau[a], tau[b])
            base, tangent, _ = _look_up(both + shift, start, steps[0], tables[0])
            share = 1.0 / (1.0 + math.exp(tau[b] - tau[a]))
            for i in range(high[a] - low[a] + 1):
                for j in range(high[b] - low[b] + 1):
                    x, z = h * (low[a] + i), h * (low[b] + j)
                    f, d, _ = _look_up(
                        _log_sum(tau[a] + x, tau[b] + z) + shift, start, steps[0], tables[0]
                    )
                    below = tangent * (share * x + (1.0 - share) * z)
                    factor[a, b, i, j], pull[a, b, i, j] = math.exp(f - base - below), d
    return _contract(factor, pull, high - low + 1)


@njit
def _contract(factor: np.ndarray, pull: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Visit all points of the grid, row by row; leave a branch when its weight is negligible."""
    t = counts.size
    sums, mass = np.zeros((t, t)), 0.0
    at, weights = np.zeros(t, dtype=np.int64), np.ones(t + 1)
    depth = 0
    while depth >= 0:
        if at[depth] == counts[depth]:
            depth -= 1
            if depth >= 0:
                at[depth] += 1
            continue
        i = at[depth]
        weight = weights[depth] * factor[depth, depth, i, 0]
        for b in range(depth):
            weight *= factor[depth, b, i, at[b]]
        if weight < 1e-9:
            at[depth] += 1
        elif depth < t - 1:
            depth += 1
            weights[depth], at[depth] = weight, 0
        else:
            mass += weight
            for a in range(t):
                sums[a, a] += weight * pull[a, a, at[a], 0]
                for b in range(a):
                    sums[a, b] += weight * pull[a, b, at[a], at[b]]
            at[depth] += 1
    for a in range(t):
        for b in range(a):
            sums[b, a] = sums[a, b]
    return sums / mass


def posterior_means(
    y: FloatArray, omega: FloatArray, variance: float, beta: float, draws: int, fine: float = 1.0
) -> FloatArray:
    """Return E[h | y] for counts and omega of shape (n, T, T), to about 1e-5 of sqrt(V)."""
    width = beta * math.sqrt(variance)
    h = fine * 0.7 * math.sqrt(1.0 / (1.0 + draws / 3.0) + 0.1 * width * width)
    extent = beta * float(np.abs(omega).max()) + 2.0 * width * width * draws
    steps = fine * _TABLE * np.array([1.0 + width, 1.0 + math.sqrt(2.0) * width])
    start, end = -30.0 - 9.0 * width, 40.0 + 4.0 * extent + 30.0 * width + math.log(draws)
    tables = np.empty((2, math.ceil((end - start) / steps[0]) + 2, 3))
    _fill_table(start, steps[0], width, tables[0])
    _fill_table(start, steps[1], math.sqrt(2.0) * width, tables[1])
    out = np.empty_like(omega)
    fill_means(y, omega, variance, beta, draws, h, start, steps, tables, out)
    return out


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


def _one_average(x: float, tokens: int, beta: float, draws: int, fisher: float, seed: int) -> float:
    """c/V over sequences: squares of posterior means, corrected by those of the score at h."""
    size = tokens * (tokens + 1) // 2
    rows, columns = np.triu_indices(tokens)
    from scipy.stats import qmc  # half a second of import that few sessions need

    law = qmc.MultivariateNormalQMC(np.zeros(2 * size), rng=np.random.default_rng(seed))
    normal = law.random(_OUTER)
    rng = np.random.default_rng(seed)
    scale = np.sqrt(1.0 + (rows == columns))
    omega, h = np.empty((2, _OUTER, tokens, tokens))
    known = math.sqrt(max(1.0 - x, 0.0)) * scale * normal[:, :size]
    omega[:, rows, columns] = omega[:, columns, rows] = known
    full = known + math.sqrt(x) * scale * normal[:, size:]
    h[:, rows, columns] = h[:, columns, rows] = full
    y, p = draw_counts(h, beta, draws, rng)
    mean = posterior_means(y, omega, x, beta, draws, fine=1.4)
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
    powers = grid[:, None] ** np.arange(1, 4)
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
