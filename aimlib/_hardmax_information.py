r"""Hardmax with three tokens or more: the information c, and the share of misclassified rows.

The posterior is in ``_hardmax``.  Over :math:`x=\sqrt{V/Q}` the ratio c/x is a smooth function.
Its value at both ends, its slope at x = 1 and its integral, which is the entropy of the output, are
known exactly; they fix a cubic.  At three tokens lattice sums add what the cubic lacks.  Rows of
independent indices, those of cross-attention, have the same four conditions in closed form, and use
the same cubic.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from aimlib._compile import njit
from aimlib._hardmax import MOST_TOKENS, is_possible, posterior
from aimlib._hardmax_sampler import spread_of
from aimlib._normal import INVERSE_SQRT_2PI, sign_information_of
from aimlib._validation import FloatArray

# c/x of three tokens in Chebyshev polynomials of 2x - 1, fitted to the four exact conditions and to
# lattice sums of c and of the entropy, which it meets to 1e-7 (notebooks/sweeps/hardmax.py)
_THREE = (
    3.081246589593e+00, -1.986524116843e-01, -3.356956879095e-02, 2.468147344067e-03,
    -8.537010473957e-04, 1.022558861673e-04, 7.040732552281e-06, 1.061268720508e-07,
)  # fmt: skip
_ERROR_OF_THREE = 1e-6
MOST_SUMMED = 6  # tokens up to which every output is summed; beyond, outputs are sampled


@functools.cache
def one_sign_integral() -> float:
    r"""J, the integral of :math:`\varphi^2/(\Phi\Phi(-w))` (``hardmax:information-small``)."""
    return float(0.2 * np.sum(sign_information_of(0.2 * np.arange(-50.0, 51.0))))


def cubic_series(
    ends: tuple[float, float], entropy: float, slope: float
) -> tuple[FloatArray, float]:
    """Polynomial in x through c/x, and an estimate of its largest relative error.

    The error is twice the distance between the cubic and the parabola without the slope at x = 1.

    Parameters
    ----------
    ends : pair of floats
        c/x at x = 0 and at x = 1.
    entropy, slope : float
        The integral of c/x over [0, 1], and its derivative at x = 1.
    """
    powers = np.arange(4.0)
    conditions = np.array([0.0**powers, 1.0**powers, 1.0 / (1.0 + powers), powers])
    values = np.array([*ends, entropy, slope])
    parabola = np.linalg.solve(conditions[:3, :3], values[:3])
    cubic = np.linalg.solve(conditions, values)
    x = np.linspace(0.0, 1.0, 101)
    evaluate = np.polynomial.polynomial.polyval
    distance = float(np.max(np.abs(evaluate(x, parabola) / evaluate(x, cubic) - 1.0)))
    return np.asarray(cubic), 2.0 * distance


@functools.cache
def series(tokens: int) -> tuple[FloatArray, float]:
    """Polynomial in x through c/x of T tokens, and an estimate of its largest relative error.

    Three tokens have lattice sums beside the exact conditions.  From seven tokens on only the
    parabola is affordable, from sampled outputs; its error is that of six tokens plus two standard
    errors.
    """
    if tokens > MOST_TOKENS:
        raise ValueError(
            f"tokens must be at most {MOST_TOKENS} for the information of hardmax, got {tokens}"
        )
    if tokens == 3:
        chebyshev = np.polynomial.Chebyshev(_THREE, domain=[0.0, 1.0])
        power = chebyshev.convert(kind=np.polynomial.Polynomial).coef
        return np.asarray(power, dtype=np.float64), _ERROR_OF_THREE
    return summed_series(tokens) if tokens <= MOST_SUMMED else sampled_series(tokens)


def summed_series(tokens: int) -> tuple[FloatArray, float]:
    """The cubic, from all outputs."""
    outputs, count = every_output(tokens)
    log_probability, gain, curvature = start_of_information(outputs, True).T
    weight = count * np.exp(log_probability)
    start = float(weight @ gain)
    ends = (tokens * boundary(tokens) * one_sign_integral(), start)
    entropy = -float(weight @ log_probability)
    return cubic_series(ends, entropy, start - 2.0 * float(weight @ curvature))


def sampled_series(tokens: int) -> tuple[FloatArray, float]:
    """The parabola, from a sample of outputs."""
    log_probability, gain, _ = start_of_information(sampled_outputs(tokens), False).T
    start = float(np.mean(gain))
    conditions = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0 / 2.0, 1.0 / 3.0]])
    values = [tokens * boundary(tokens) * one_sign_integral(), start, -np.mean(log_probability)]
    sampling = 2.0 * float(np.std(gain) / math.sqrt(len(gain)) / start)
    return np.linalg.solve(conditions, np.array(values)), series(MOST_SUMMED)[1] + sampling


@njit
def start_of_information(outputs: np.ndarray, curvature: bool) -> np.ndarray:
    """What each output says if nothing is known: log P, |E h~|^2 and ||Cov h~ - 1||_F^2.

    h~ = h/spread, and Cov h~ is the derivative of its mean in its prior mean, by differences.
    The last is left out, as zero, unless ``curvature`` is set.
    """
    t = outputs.shape[1]
    step = 1e-4
    result = np.zeros((outputs.shape[0], 3))
    z, mean, other = np.zeros((t, t)), np.empty((t, t)), np.empty((t, t))
    for y in range(outputs.shape[0]):
        result[y, 0] = posterior(outputs[y], z, mean)[0]
        # half of the sum over the full matrix: a diagonal index has variance 2, any other is double
        for a in range(t):
            for b in range(t):
                result[y, 1] += 0.5 * mean[a, b] ** 2
        if not curvature:
            continue
        for a in range(t):
            for b in range(a, t):
                s = spread_of(a, b)
                z[a, b] = z[b, a] = step * s
                posterior(outputs[y], z, mean)
                z[a, b] = z[b, a] = -step * s
                posterior(outputs[y], z, other)
                z[a, b] = z[b, a] = 0.0
                for c in range(t):
                    for d in range(t):  # the covariance of h_cd with h~_ab, less that before y
                        slope = (mean[c, d] - other[c, d]) / (2.0 * step)
                        if (c == a and d == b) or (c == b and d == a):
                            slope -= s
                        result[y, 2] += 0.5 * slope * slope
    return result


@functools.cache
def every_output(tokens: int) -> tuple[Any, Any]:
    """Winners of one output of each kind, and how many outputs a permutation of tokens makes it."""
    every = np.array(list(itertools.product(range(tokens), repeat=tokens)))
    digits = tokens ** np.arange(tokens)
    kind = np.full(len(every), tokens**tokens)
    for permutation in itertools.permutations(range(tokens)):
        order = np.array(permutation)
        # tokens renamed by the permutation: row p(a) picks p(w_a)
        kind = np.minimum(kind, order[every] @ digits[order])
    _, first, count = np.unique(kind, return_index=True, return_counts=True)
    possible = np.array([is_possible(winner) for winner in every[first]])
    return every[first][possible], count[possible].astype(np.float64)


def sampled_outputs(tokens: int) -> Any:
    """Winners of random outputs."""
    from scipy.stats import qmc  # half a second of import that few sessions need

    law = qmc.MultivariateNormalQMC(
        np.zeros(tokens * (tokens + 1) // 2), rng=np.random.default_rng(tokens)
    )
    normal = law.random(2**12)
    rows, columns = np.triu_indices(tokens)
    h = np.empty((len(normal), tokens, tokens))
    h[:, rows, columns] = h[:, columns, rows] = normal * np.sqrt(1.0 + (rows == columns))
    return h.argmax(axis=2)


_POINTS = np.linspace(-12.0, 12.0, 481)


def boundary(tokens: int) -> float:
    r"""Rate at which a row is undecided, :math:`\sum_{b<c} s_{bc}\,p_{bc}`.

    p is the density at zero of the difference of the two indices where both exceed the rest of the
    row, and s^2 V the variance left in it (``hardmax:boundary``).
    """
    from scipy import special

    t, m = tokens, _POINTS
    density = np.exp(-0.5 * m * m) * INVERSE_SQRT_2PI
    diagonal = np.exp(-0.25 * m * m) * INVERSE_SQRT_2PI / math.sqrt(2.0)
    below, below_diagonal = special.ndtr(m), special.ndtr(m / math.sqrt(2.0))
    rate = math.sqrt(3.0) * (t - 1) * np.sum(density * diagonal * below ** (t - 2))
    if t > 2:
        two = density**2 * below ** (t - 3) * below_diagonal
        rate += math.sqrt(2.0) * 0.5 * (t - 1) * (t - 2) * np.sum(two)
    return float(rate * (m[1] - m[0]))


def misclassified(tokens: int, x: float) -> float:
    """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
    root = math.sqrt(2.0)
    if x < 1e-5:  # the sum below would cancel; two tokens fix the constant
        return math.sqrt(2.0 / math.pi) * boundary(tokens) * x
    own = stays_largest(root, ((1.0, tokens - 1),), x)
    other = stays_largest(1.0, ((root, 1), (1.0, tokens - 2)), x)
    return max(1.0 - own - (tokens - 1) * other, 0.0)


def stays_largest(own: float, others: tuple[tuple[float, int], ...], x: float) -> float:
    """Probability that an index is the largest of its row in omega and in h, at x = sqrt(V/Q).

    Its standard deviation is ``own``; of the others there are ``(standard deviation, number)``.
    """
    r = math.sqrt((1.0 - x) * (1.0 + x))
    step = 0.15
    points = step * (np.arange(-60, 60) + 0.5)
    weight = np.exp(-0.5 * points**2) * INVERSE_SQRT_2PI * step
    factor = np.ones((points.size, points.size))
    for spread, count in others:  # own * points is the largest, all others are below
        h, z = own / spread * points[:, None], own / spread * points
        factor *= _both_below(h, z, r, x) ** count
    return float(weight @ factor @ weight)


def _both_below(h: Any, z: Any, r: float, x: float) -> FloatArray:
    """Probability that standard normals of correlation r lie below h and r h + x z (Owen 1956)."""
    from scipy import special

    k = r * h + x * z
    with np.errstate(divide="ignore"):
        tails = special.owens_t(h, z / h) + special.owens_t(k, (x * h - r * z) / k)
    return np.asarray(0.5 * (special.ndtr(h) + special.ndtr(k) - (h * k < 0.0)) - tails)
