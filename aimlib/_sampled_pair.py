r"""Two tokens seen through tokens drawn from the softmax, or through a softmax with noise.

Each row a shows something of one difference :math:`u_a` of indices alone, with the probability
:math:`p=\sigma(\beta u_a)` of its own token: a count of m draws, or :math:`\hat p` with noise.  The
rows are tied by the Gaussian :math:`u`, whose precision is

.. math:: \tfrac12x^\top(VC)^{-1}x = \frac{x_1^2+x_2^2}{8V}+\frac{(x_1-x_2)^2}{16V},\qquad
          C=\begin{pmatrix}3&1\\1&3\end{pmatrix}.

On a grid of equal steps the tie is a function of the difference of two positions, so that a sum
over the plane takes exponentials of the axes only.  All sums are trapezoidal, and converge
geometrically.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray

_FINE = 0.65  # steps over the smallest width that a factor of an integrand has
_FAR = 38.0  # nats below the top where an integrand has ended
_REACH = 8.6  # standard deviations where a Gaussian has


def step_of(variance: float, beta: float, draws: int, noise: float) -> float:
    """Return the step that resolves one row: its prior, its poles at i pi/beta, its curvature."""
    curvature = 0.25 * draws if draws else 0.125 / noise
    return _FINE / math.sqrt(0.5 / variance + beta * beta * (1.0 + curvature))


@njit
def _softplus(a: float) -> tuple[float, float]:
    """Return log(1 + e^a) and its derivative sigma(a)."""
    small = math.exp(-abs(a))
    p = 1.0 / (1.0 + small)
    return max(a, 0.0) + math.log1p(small), p if a >= 0.0 else small * p


@njit
def _log_likelihood(shown: float, u: float, beta: float, draws: int, noise: float) -> float:
    """Log of the law of a count of ``draws``, or (draws = 0) of a probability with noise."""
    total, p = _softplus(beta * u)
    if draws > 0:
        return shown * beta * u - draws * total
    return -((shown - p) ** 2) / noise


# ---------------------------------------------------------------------------------------------
# The posterior
# ---------------------------------------------------------------------------------------------


@njit
def _objective(
    u1: float, u2: float, y1: float, y2: float, w1: float, w2: float, v: float, b: float, m: int
) -> float:
    x1, x2 = u1 - w1, u2 - w2
    prior = (x1 * x1 + x2 * x2) / (8.0 * v) + (x1 - x2) ** 2 / (16.0 * v)
    return _log_likelihood(y1, u1, b, m, 0.0) + _log_likelihood(y2, u2, b, m, 0.0) - prior


@njit
def _mode(
    y1: float, y2: float, w1: float, w2: float, v: float, b: float, m: int
) -> tuple[float, float]:
    """Newton's iteration for the mode of the counts, whose logarithm is concave."""
    u1, u2 = w1, w2
    value = _objective(u1, u2, y1, y2, w1, w2, v, b, m)
    for _ in range(100):
        x1, x2 = u1 - w1, u2 - w2
        p1, p2 = 1.0 / (1.0 + math.exp(-b * u1)), 1.0 / (1.0 + math.exp(-b * u2))
        s1 = b * (y1 - m * p1) - (3.0 * x1 - x2) / (8.0 * v)
        s2 = b * (y2 - m * p2) - (3.0 * x2 - x1) / (8.0 * v)
        k1 = 0.375 / v + m * b * b * p1 * (1.0 - p1)
        k2 = 0.375 / v + m * b * b * p2 * (1.0 - p2)
        tie = -0.125 / v
        determinant = k1 * k2 - tie * tie
        d1, d2 = (k2 * s1 - tie * s2) / determinant, (k1 * s2 - tie * s1) / determinant
        size = 1.0
        while size > 1e-6:
            moved = _objective(u1 + size * d1, u2 + size * d2, y1, y2, w1, w2, v, b, m)
            if moved >= value:
                break
            size *= 0.5
        if size <= 1e-6:
            break
        u1, u2, value = u1 + size * d1, u2 + size * d2, moved
        if s1 * d1 + s2 * d2 < 1e-6:
            break
    return u1, u2


@njit
def _profile(
    shown: float, centre: float, pull: float, low: int, high: int, h: float, v: float,
    b: float, m: int, noise: float,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Weights of one axis at centre + h i, i from the returned first one; the largest is one.

    Without bounds, low > high, the weights are those of a concave logarithm with its top near i = 0
    and are followed to their ends.
    """
    base = _log_likelihood(shown, centre, b, m, noise)
    if low > high:
        for sign in (-1, 1):
            i = 0
            while True:
                i += sign
                x = h * i
                level = _log_likelihood(shown, centre + x, b, m, noise) - base
                if level - x * x / (8.0 * v) - pull * x < -_FAR:
                    break
            if sign < 0:
                low = i
            else:
                high = i
    logs = np.empty(high - low + 1)
    for k in range(logs.size):
        x = h * (low + k)
        level = _log_likelihood(shown, centre + x, b, m, noise) - base
        logs[k] = level - x * x / (8.0 * v) - pull * x
    top = logs.max()
    first, last = 0, logs.size - 1
    while logs[first] < top - _FAR - 20.0:
        first += 1
    while logs[last] < top - _FAR - 20.0:
        last -= 1
    return np.exp(logs[first : last + 1] - top), low + first


@njit
def _window(shown: float, centre: float, h: float, v: float, b: float) -> tuple[int, int]:
    """Steps that hold the prior around the centre, and what the row itself says."""
    reach = 2.0 * _REACH * math.sqrt(v)
    p = min(max(shown, 1e-12), 1.0 - 1e-12)
    own = math.log(p / (1.0 - p)) / b - centre
    return math.floor((min(own, 0.0) - reach) / h), math.ceil((max(own, 0.0) + reach) / h)


@njit
def fill_means(
    shown: np.ndarray, omega: np.ndarray, variance: float, beta: float, draws: int, noise: float,
    h: float, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill E[h | y] for n sequences from what the two rows show, shape (n, 2)."""
    v = variance
    for k in range(omega.shape[0]):
        y1, y2 = shown[k, 0], shown[k, 1]
        w1, w2 = omega[k, 0, 0] - omega[k, 0, 1], omega[k, 1, 1] - omega[k, 0, 1]
        c1, c2 = w1, w2
        low1, high1, low2, high2 = 1, 0, 1, 0
        if draws > 0:
            c1, c2 = _mode(y1, y2, w1, w2, v, beta, draws)
        else:
            low1, high1 = _window(y1, w1, h, v, beta)
            low2, high2 = _window(y2, w2, h, v, beta)
        g1 = (3.0 * (c1 - w1) - (c2 - w2)) / (8.0 * v)
        g2 = (3.0 * (c2 - w2) - (c1 - w1)) / (8.0 * v)
        a, i0 = _profile(y1, c1, g1, low1, high1, h, v, beta, draws, noise)
        b, j0 = _profile(y2, c2, g2, low2, high2, h, v, beta, draws, noise)
        tie = _tie(i0 - j0 - b.size + 1, a.size + b.size - 1, h, v)
        mass, first, second = 0.0, 0.0, 0.0
        for i in range(a.size):
            row, moment = 0.0, 0.0
            for j in range(b.size):
                weight = b[j] * tie[i - j + b.size - 1]
                row += weight
                moment += weight * j
            mass += a[i] * row
            first += a[i] * row * i
            second += a[i] * moment
        d1, d2 = c1 - w1 + h * i0, c2 - w2 + h * j0
        if mass > 0.0:
            d1, d2 = d1 + h * first / mass, d2 + h * second / mass
        out[k, 0, 0] = omega[k, 0, 0] + (3.0 * d1 - d2) / 4.0
        out[k, 1, 1] = omega[k, 1, 1] + (3.0 * d2 - d1) / 4.0
        out[k, 0, 1] = out[k, 1, 0] = omega[k, 0, 1] - (d1 + d2) / 4.0


@njit
def _tie(first: int, count: int, h: float, v: float) -> np.ndarray:
    """exp(-(x_1 - x_2)^2/16V) at the differences first, first + 1, ... of positions."""
    out = np.empty(count)
    for k in range(count):
        x = h * (first + k)
        out[k] = math.exp(-x * x / (16.0 * v))
    return out


# ---------------------------------------------------------------------------------------------
# The information, in units in which Q = 1
# ---------------------------------------------------------------------------------------------


@njit
def _fill_smooth(
    shown: np.ndarray, weights: np.ndarray, centres: np.ndarray, variance: float, h: float,
    beta: float, draws: int, noise: float, law: np.ndarray, slope: np.ndarray,
) -> None:  # fmt: skip
    """Law of what a row shows, and its slope, where u is Gaussian around each of the centres."""
    n = math.ceil(_REACH * math.sqrt(variance) / h)
    total = 0.0
    for i in range(-n, n + 1):
        total += math.exp(-0.5 * (h * i) ** 2 / variance)
    for t in range(centres.size):
        for k in range(shown.size):
            law[k, t] = slope[k, t] = 0.0
        for i in range(-n, n + 1):
            gauss = math.exp(-0.5 * (h * i) ** 2 / variance) / total
            u = centres[t] + h * i
            softplus, p = _softplus(beta * u)
            for k in range(shown.size):
                gap = shown[k] - (draws * p if draws > 0 else p)
                level = shown[k] * beta * u - draws * softplus
                steep = beta
                if draws == 0:
                    level = -gap * gap / noise
                    steep = 2.0 * beta * p * (1.0 - p) / noise
                if level + weights[k] > -2.0 * _FAR:
                    value = gauss * math.exp(level + weights[k])
                    law[k, t] += value
                    slope[k, t] += value * steep * gap


def _outcomes(
    centre: float, x: float, beta: float, draws: int, noise: float
) -> tuple[FloatArray, FloatArray]:
    """What a row may show with u around a centre, and the log of the measure of each.

    Counts have the binomial coefficients.  A probability with noise is summed over equal steps of
    s, sigma(beta s) + spread s/scale being what is shown: one step is in proportion to the width of
    its law, that of the noise and of what is not known of u.
    """
    if draws:
        counts = np.arange(draws + 1.0)
        logs = np.array([math.lgamma(draws + 1.0) - math.lgamma(k + 1.0)
                         - math.lgamma(draws - k + 1.0) for k in counts])  # fmt: skip
        return counts, logs
    spread, scale = math.sqrt(0.5 * noise), 1.0 / math.sqrt(1.0 / x + beta * beta)
    ends = _probability(centre + _REACH * math.sqrt(3.0 * x) * np.array([-1.0, 1.0]), beta)
    ends += _REACH * spread * np.array([-1.0, 1.0])

    def shown(s: Any) -> Any:
        return _probability(s, beta) + spread * s / scale

    low, high = _solve(shown, ends[0], scale, spread), _solve(shown, ends[1], scale, spread)
    h = 0.5 * scale
    s = h * np.arange(math.floor(low / h), math.ceil(high / h) + 1)
    p = _probability(s, beta)
    measure = h * (beta * p * (1.0 - p) + spread / scale)
    return shown(s), np.log(measure / math.sqrt(math.pi * noise))


def _probability(u: Any, beta: float) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * beta * u))


def _solve(shown: Any, target: float, scale: float, spread: float) -> float:
    """Solve an increasing function by bisection."""
    high = scale * (abs(target) + 1.0) / spread
    low = -high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shown(middle) < target else (low, middle)
    return high


class _Rows:
    """The law of one row around each of the means, given also what the rows share."""

    def __init__(self, x: float, beta: float, draws: int, noise: float) -> None:
        self.x, self.beta, self.draws, self.noise = x, beta, draws, noise
        n = math.ceil(_REACH / 0.5)
        shared = 0.5 * math.sqrt(x) * np.arange(-n, n + 1)
        weights = np.exp(-0.5 * shared**2 / x)
        self.shared, self.weights = shared, weights / weights.sum()
        self.step = step_of(x, beta, draws, noise)

    def _smooth(self, mean: float, offsets: Any, variance: float) -> Any:
        outcomes, logs = _outcomes(mean, self.x, self.beta, self.draws, self.noise)
        law, slope = np.empty((2, outcomes.size, offsets.size))
        _fill_smooth(outcomes, logs, mean + offsets, variance, self.step,
                     self.beta, self.draws, self.noise, law, slope)  # fmt: skip
        return law, slope

    def alone(self, mean: float) -> float:
        """Information of one row at this mean of u, when the other row is certain."""
        law, slope = self._smooth(mean, np.zeros(1), 3.0 * self.x)
        return float(3.0 * self.x * np.sum(slope**2 / np.maximum(law, 1e-300)))

    def given(self, mean: float) -> Any:
        """Law and slope given the shared index, shape (outcomes, shared)."""
        return self._smooth(mean, -self.shared, 2.0 * self.x)


def pair_information(x: float, beta: float, draws: int, noise: float) -> float:
    r"""Return c at V = x, Q = 1 (``sampled_tokens:pair-information``), to about 1e-11.

    Far from zero on one axis that row is certain and G is the information of the other; what the
    corner adds is local.
    """
    known = 1.0 - x
    rows = _Rows(x, beta, draws, noise)
    if known <= 0.0:
        table = rows.given(0.0)
        return float(_joint(table, [table], rows)[0])
    wide = math.sqrt(3.0 * known)
    h = min(0.25 * math.sqrt(3.0 * x + (2.5 / beta) ** 2), 0.6 * wide)
    if not draws:  # where the row starts to be told from certainty the noise sets the scale
        h = min(h, 0.25 * math.sqrt(3.0 * x + 1.0 / beta**2))
    tail = 34.0 + 2.0 * math.log(max(draws, 1.0 / noise if noise else 1.0))
    corner = tail / beta + 9.0 * math.sqrt(3.0 * x)
    last = math.ceil(_REACH * wide / h)
    n = math.ceil(min(corner, _REACH * wide) / h)
    w = h * np.arange(last + 1)
    one = np.array([rows.alone(z) for z in w])
    gauss = np.exp(-(w**2) / (6.0 * known))
    line = 2.0 * (one[0] + 2.0 * gauss[1:] @ one[1:]) / (1.0 + 2.0 * gauss[1:].sum())
    tables = [rows.given(z) for z in h * np.arange(-n, n + 1)]
    total = 0.0
    for i in range(n + 1):  # unchanged by (w1, w2) -> (w2, w1) and -> (-w1, -w2): |w2| <= w1
        j = np.arange(-i, i + 1)
        both = _joint(tables[n + i], [tables[n + k] for k in j], rows)
        form = 3.0 * i * i + 3.0 * j * j - 2.0 * i * j
        times = np.where(np.abs(j) == i, 2.0 if i else 1.0, 4.0)
        rest = both - one[i] - one[np.abs(j)]
        total += float(np.sum(times * np.exp(-form * h * h / (16.0 * known)) * rest))
    return float(line + total * h * h / (2.0 * math.pi * math.sqrt(8.0) * known))


def _joint(first: Any, others: list[Any], rows: _Rows) -> FloatArray:
    """Sum over the outcomes of V g^T C g P for one mean of the first row, several of the second."""
    law, slope = first[0] * rows.weights, first[1] * rows.weights
    second = np.concatenate([table[0] for table in others]).T
    second_slope = np.concatenate([table[1] for table in others]).T
    p, d1, d2 = law @ second, slope @ second, law @ second_slope
    terms = np.sum((3.0 * (d1 * d1 + d2 * d2) + 2.0 * d1 * d2) / np.maximum(p, 1e-300), axis=0)
    ends = np.cumsum([table[0].shape[0] for table in others])
    return np.asarray(rows.x * np.add.reduceat(terms, np.append(0, ends[:-1])))
