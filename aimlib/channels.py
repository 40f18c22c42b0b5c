r"""Output channels: what an output says about the attention indices behind it.

Given the data so far, the indices of a new sequence are Gaussian (``channels:prior``),

.. math:: h_{ab} \sim \mathcal N\bigl(\omega_{ab}, (1+\delta_{ab})V\bigr),\qquad a \le b,

independent and symmetric in a, b.  A channel answers three questions: what it shows
(:meth:`output`), what the indices are on average once the output is seen
(:meth:`posterior_mean`), and how much that is worth, the channel information
(:meth:`information`, ``channels:information``)

.. math:: c(q) = V \sum_{a\le b}(1+\delta_{ab})\, E\,g_{ab}^2,\qquad
          g_{ab} = \frac{E[h_{ab}\mid y]-\omega_{ab}}{(1+\delta_{ab})V},\quad V = Q-q,

the number of index directions, of T(T+1)/2, that one output pins down.  ``information_at`` is the
same function of the uncertainty V itself, which keeps its digits when V is tiny.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._hardmax import MOST_TOKENS, is_possible, posterior_means, start_of_information
from aimlib._normal import log_normal_cdf, normal_cdf, normal_pdf
from aimlib._validation import FloatArray

__all__ = [
    "Channel",
    "HardmaxChannel",
    "Informative",
    "LinearChannel",
    "SoftmaxChannel",
    "output_function",
]


class Informative(Protocol):
    """What state evolution asks of a channel, whatever the shape of its indices.

    ``weights`` names the priors that fit: "symmetric", "rectangular" or "layered".
    """

    @property
    def weights(self) -> str: ...

    def information(self, overlap: ArrayLike, second_moment: float) -> Any: ...
    def information_at(self, variance: ArrayLike, second_moment: float) -> Any: ...
    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any: ...
    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any: ...


class Channel(Informative, Protocol):
    """What the theory and the algorithms ask of a channel of symmetric indices."""

    @property
    def tokens(self) -> int: ...

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray: ...
    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray: ...


def output_function(
    channel: Channel, y: ArrayLike, omega: ArrayLike, variance: float
) -> FloatArray:
    r"""Return :math:`g_{ab} = (E[h_{ab}\mid y]-\omega_{ab})/((1+\delta_{ab})V)`.

    Parameters
    ----------
    channel : Channel
    y, omega : array, shape (..., T, T)
    variance : float
        V > 0.

    Returns
    -------
    array, shape (..., T, T)
        Symmetric in the last two axes (``channels:gout``).
    """
    mean = channel.posterior_mean(y, omega, variance)
    t = channel.tokens
    return np.asarray((mean - np.asarray(omega)) / ((1.0 + np.eye(t)) * variance))


# ---------------------------------------------------------------------------------------------
# Linear: the indices themselves, with Gaussian noise
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearChannel:
    r"""The indices with noise, :math:`y_{ab} = h_{ab} + \sqrt\tau\,z_{ab}`.

    The noise is independent over :math:`a\le b`.  With one token it is the quadratic network of
    Maillard et al. (2024).

    Parameters
    ----------
    tokens : int
        T, at least 1.
    noise : float
        Variance :math:`\tau \ge 0`.

    Examples
    --------
    >>> LinearChannel(tokens=1, noise=0.25).information(0.5, 1.5)
    0.8888888888888888
    """

    weights: ClassVar[Literal["symmetric"]] = "symmetric"
    tokens: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=1)
        object.__setattr__(self, "noise", check.real("noise", self.noise, low=0.0))

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T); a positive noise needs ``rng``."""
        h = _index_array("indices", indices, self.tokens)
        if self.noise == 0.0:
            return h.copy()
        if rng is None:
            raise ValueError(
                f"rng must be a numpy Generator when noise is {self.noise!r}, got None"
            )
        z = np.triu(rng.standard_normal(h.shape))
        return h + math.sqrt(self.noise) * (z + np.swapaxes(np.triu(z, 1), -1, -2))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] by Gaussian conditioning (``channels:linear``)."""
        outputs, centre, v = _posterior_arguments(y, omega, variance, self.tokens)
        prior = (1.0 + np.eye(self.tokens)) * v
        return np.asarray(centre + prior / (prior + self.noise) * (outputs - centre))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c(q) = \sum_{a\le b}\frac{(1+\delta_{ab})V}{(1+\delta_{ab})V+\tau}`."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        v = _variances(variance, second_moment)
        t = self.tokens
        if self.noise == 0.0:
            return _like(0.5 * t * (t + 1.0) + 0.0 * v)
        off = 0.5 * t * (t - 1.0) * v / (v + self.noise)
        return _like(t * 2.0 * v / (2.0 * v + self.noise) + off)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out}`, the entropy of y given the indices up to V."""
        v = _variances(variance, second_moment)
        t = self.tokens
        with np.errstate(divide="ignore"):
            diagonal = 0.5 * t * np.log(2.0 * math.pi * math.e * (2.0 * v + self.noise))
            off = 0.25 * t * (t - 1.0) * np.log(2.0 * math.pi * math.e * (v + self.noise))
        return _like(diagonal + off)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|h-E[h]\|_F^2 = T(T+1)V`, the error on the output without its noise."""
        v = _variances(variance, second_moment)
        return _like(self.tokens * (self.tokens + 1.0) * v)


# ---------------------------------------------------------------------------------------------
# Softmax: the indices up to one common constant
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxChannel:
    r"""Row-wise softmax, :math:`y_{ab} = e^{\beta h_{ab}}/\sum_c e^{\beta h_{ac}}`.

    The output gives every row of h up to a shift; the symmetry of h ties the shifts together, so
    that y fixes h up to one additive constant (``channels:softmax-inversion``).

    Parameters
    ----------
    tokens : int
        T, at least 2: with a single token the output is always 1.
    inverse_temperature : float
        :math:`\beta > 0`.

    Examples
    --------
    >>> channel = SoftmaxChannel(tokens=3)
    >>> channel.information(0.5, 1.5)
    5.0
    """

    weights: ClassVar[Literal["symmetric"]] = "symmetric"
    tokens: int = 2
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=2)
        beta = check.real("inverse_temperature", self.inverse_temperature, low=0.0, open_low=True)
        object.__setattr__(self, "inverse_temperature", beta)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T), rows summing to one; ``rng`` is not used."""
        h = self.inverse_temperature * _index_array("indices", indices, self.tokens)
        weights = np.exp(h - h.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return E[h | y]: weighted least squares for the constant (``channels:softmax-mean``).

        Raises
        ------
        ValueError
            If an output is not positive.  At large :math:`\beta` the smallest outputs underflow to
            zero and no longer determine the indices: use a smaller ``inverse_temperature``, or
            :class:`HardmaxChannel`.
        """
        outputs, centre, _ = _posterior_arguments(y, omega, variance, self.tokens)
        base = self._indices_up_to_a_constant(outputs)
        # the weights 1/(1 + delta_ab) over a <= b are uniform weights over the full matrix
        constant = (centre - base).mean(axis=(-2, -1), keepdims=True)
        return np.asarray(base + constant)

    def _indices_up_to_a_constant(self, outputs: FloatArray) -> FloatArray:
        smallest = float(outputs.min()) if outputs.size else 1.0
        if smallest <= 0.0:
            raise ValueError(
                f"y must hold positive softmax outputs, got {smallest!r}: with inverse_temperature "
                f"{self.inverse_temperature:g} an output has underflowed"
            )
        logs = np.log(outputs) / self.inverse_temperature
        # log y_ab/beta = h_ab - s_a: antisymmetry gives s_a - s_b, hence s_a up to a constant
        shifts = (np.swapaxes(logs, -1, -2) - logs).mean(axis=-1, keepdims=True)
        base = logs + shifts
        return np.asarray(0.5 * (base + np.swapaxes(base, -1, -2)))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T(T+1)/2-1`, whatever the overlap and :math:`\beta`."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q: a constant."""
        v = _variances(variance, second_moment)
        return _like(0.5 * self.tokens * (self.tokens + 1.0) - 1.0 + 0.0 * v)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out} = \frac c2\log(2\pi e V)`, up to a constant.

        The constant depends on the coordinates chosen for y, and on nothing that is learned.
        """
        v = _variances(variance, second_moment)
        c = 0.5 * self.tokens * (self.tokens + 1.0) - 1.0
        with np.errstate(divide="ignore"):
            return _like(0.5 * c * np.log(2.0 * math.pi * math.e * v))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|y-E[y\mid\mathrm{data}]\|_F^2` on a new sequence.

        Half the mean squared distance between the outputs of two posterior samples
        (``softmax:generalization``).  Two tokens: by quadrature, to about 1e-10 for
        :math:`\beta\sqrt Q` up to 10.  More tokens: by quasi-Monte Carlo with a fixed seed, to
        about 1e-3 relative.
        """
        v = _variances(variance, second_moment)
        values = [
            _softmax_error_pair(x, second_moment, self.inverse_temperature)
            if self.tokens == 2
            else _softmax_error_sampled(x, second_moment, self)
            for x in v.ravel()
        ]
        return _like(np.array(values).reshape(v.shape))


def _softmax_error_pair(variance: float, second_moment: float, beta: float) -> float:
    """T = 2: in the sum and difference of two posterior samples of u, which are independent.

    Each of the four entries of y is a logistic function of one of the differences u of indices,
    of variance 3Q, and the errors of all four are equal: the sum is 2 E (sigma - sigma')^2.
    """
    steep = beta * math.sqrt(3.0 * second_moment)
    step = max(min(0.5, 0.5 / steep), 0.0125)
    z = np.arange(-math.ceil(9.0 / step), math.ceil(9.0 / step) + 1) * step
    weight = np.exp(-0.5 * z * z) * step * _INVERSE_SQRT_2PI
    common = 0.5 * beta * math.sqrt(3.0 * (2.0 * second_moment - variance) / 2.0) * z
    half = 0.5 * beta * math.sqrt(1.5 * variance) * z
    # sigma(2a) - sigma(2b) = sinh(a - b)/(2 cosh a cosh b), all positive and without cancellation
    log_cosh = np.logaddexp(common[:, None] + half, -common[:, None] - half) + np.logaddexp(
        common[:, None] - half, half - common[:, None]
    )
    difference = 2.0 * np.sinh(2.0 * np.clip(np.abs(half), None, 300.0)) * np.exp(-log_cosh)
    return float(2.0 * weight @ difference**2 @ weight)


def _softmax_error_sampled(variance: float, second_moment: float, channel: Channel) -> float:
    from scipy.stats import qmc  # half a second of import that few sessions need

    t = channel.tokens
    rows, columns = np.triu_indices(t)
    scale = np.sqrt(1.0 + (rows == columns))
    points = qmc.MultivariateNormalQMC(np.zeros(2 * rows.size), rng=np.random.default_rng(0))
    normal = points.random(2**14)
    mean, spread = normal[:, : rows.size], normal[:, rows.size :]
    outputs = []
    for sign in (1.0, -1.0):  # the half-sum and half-difference of two samples are independent
        h = np.empty((normal.shape[0], t, t))
        values = scale * (
            math.sqrt(second_moment - 0.5 * variance) * mean
            + sign * math.sqrt(0.5 * variance) * spread
        )
        h[:, rows, columns] = h[:, columns, rows] = values
        outputs.append(channel.output(h))
    return float(0.5 * np.mean(np.sum((outputs[0] - outputs[1]) ** 2, axis=(1, 2))))


# ---------------------------------------------------------------------------------------------
# Hardmax with two tokens.  The output is the pair of signs of u = (h_11 - h_12, h_22 - h_12),
# Gaussian with covariance V [[3, 1], [1, 3]].  In units of sqrt(3V) this is a standard bivariate
# normal of correlation 1/3, truncated to a quadrant.
# ---------------------------------------------------------------------------------------------

_INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_CORRELATION = 1.0 / 3.0
_CONDITIONAL = math.sqrt(1.0 - _CORRELATION**2)
_ARC_NODES, _ARC_WEIGHTS = np.polynomial.legendre.leggauss(12)
_TAIL_NODES, _TAIL_WEIGHTS = np.polynomial.legendre.leggauss(64)
_SAFE_PROBABILITY = 1e-2  # above it the quadrant probability keeps 13 digits


@njit
def _quadrant_probability(a: float, b: float, r: float) -> float:
    """P(x > -a, y > -b) at correlation r = +-1/3, by Plackett's integral over the correlation."""
    top = math.asin(r)
    total = 0.0
    for k in range(_ARC_NODES.size):
        theta = 0.5 * top * (1.0 + _ARC_NODES[k])
        sine, cosine = math.sin(theta), math.cos(theta)
        exponent = (a * a + b * b - 2.0 * a * b * sine) / (2.0 * cosine * cosine)
        total += _ARC_WEIGHTS[k] * math.exp(-exponent)
    return normal_cdf(a) * normal_cdf(b) + total * top / (4.0 * math.pi)


@njit
def _tail_mean(a: float, b: float, r: float) -> float:
    """E[x | x > -a, y > -b] by quadrature of the log-concave marginal of x, valid anywhere.

    The marginal is proportional to exp(-x^2/2) Phi((b + r x)/sqrt(1 - r^2)).  Minus its logarithm
    has a curvature between 1 and 9/8, which bounds the window that holds all of its mass.
    """
    scale = r / _CONDITIONAL

    low, high = -a, max(-a, 0.0) + 1.0
    # bracket the mode: the slope of the logarithm decreases
    start = -a
    slope_start = _tail_slope(start, b, r, scale)
    if slope_start <= 0.0:
        left = start
        right = start + 90.0 / (-slope_start + math.sqrt(slope_start * slope_start + 90.0))
    else:
        high = start + slope_start + 1.0  # curvature >= 1: the mode is within slope_start
        for _ in range(200):
            middle = 0.5 * (low + high)
            if high - low < 0.01:
                break
            if _tail_slope(middle, b, r, scale) > 0.0:
                low = middle
            else:
                high = middle
        left, right = max(start, low - 9.5), high + 9.5
    half = 0.5 * (right - left)
    peak = -math.inf
    for k in range(_TAIL_NODES.size):
        x = left + half * (1.0 + _TAIL_NODES[k])
        peak = max(peak, -0.5 * x * x + log_normal_cdf((b + r * x) / _CONDITIONAL))
    mass, moment = 0.0, 0.0
    for k in range(_TAIL_NODES.size):
        offset = half * (1.0 + _TAIL_NODES[k])
        x = left + offset
        logarithm = -0.5 * x * x + log_normal_cdf((b + r * x) / _CONDITIONAL)
        weight = _TAIL_WEIGHTS[k] * math.exp(logarithm - peak)
        mass += weight
        moment += weight * offset
    return left + moment / mass


@njit
def _tail_slope(x: float, b: float, r: float, scale: float) -> float:
    """Derivative of -x^2/2 + log Phi((b + r x)/sqrt(1 - r^2))."""
    argument = (b + r * x) / _CONDITIONAL
    if argument > -30.0:
        mills = normal_pdf(argument) / normal_cdf(argument)
    else:  # phi/Phi = -x (1 + 1/x^2 - 2/x^4 + ...)
        square = 1.0 / (argument * argument)
        mills = -argument * (1.0 + square * (1.0 - 2.0 * square))
    return -x + scale * mills


@njit
def _quadrant_means(a: float, b: float, r: float) -> tuple[float, float]:
    """Means of a standard bivariate normal truncated to x > -a, y > -b."""
    probability = _quadrant_probability(a, b, r)
    if probability > _SAFE_PROBABILITY:
        first = normal_pdf(a) * normal_cdf((b - r * a) / _CONDITIONAL)
        second = normal_pdf(b) * normal_cdf((a - r * b) / _CONDITIONAL)
        return (first + r * second) / probability, (second + r * first) / probability
    return _tail_mean(a, b, r), _tail_mean(b, a, r)


@njit
def _hardmax_pair(
    first: np.ndarray, second: np.ndarray, omega: np.ndarray, variance: float, out: np.ndarray
) -> None:
    """Fill E[h | y] for n sequences; first, second say whether a row picks its own token."""
    unit = math.sqrt(3.0 * variance)
    for k in range(omega.shape[0]):
        s = 1.0 if first[k] else -1.0
        t = 1.0 if second[k] else -1.0
        a = s * (omega[k, 0, 0] - omega[k, 0, 1]) / unit
        b = t * (omega[k, 1, 1] - omega[k, 0, 1]) / unit
        x, y = _quadrant_means(a, b, s * t * _CORRELATION)
        d1, d2 = s * x * unit, t * y * unit
        out[k, 0, 0] = omega[k, 0, 0] + (3.0 * d1 - d2) / 4.0
        out[k, 1, 1] = omega[k, 1, 1] + (3.0 * d2 - d1) / 4.0
        out[k, 0, 1] = omega[k, 0, 1] - (d1 + d2) / 4.0
        out[k, 1, 0] = out[k, 0, 1]


@njit
def _sign_information(w1: float, w2: float) -> float:
    """Sum over the four outputs of P d^T C^-1 d, d the shift of the mean and C = [[1,r],[r,1]]."""
    total = 0.0
    for s in (-1.0, 1.0):
        for t in (-1.0, 1.0):
            r = s * t * _CORRELATION
            a, b = s * w1, t * w2
            probability = _quadrant_probability(a, b, r)
            first = normal_pdf(a) * normal_cdf((b - r * a) / _CONDITIONAL)
            second = normal_pdf(b) * normal_cdf((a - r * b) / _CONDITIONAL)
            if probability > _SAFE_PROBABILITY:
                # P d = C (first, second), so that P d^T C^-1 d = (f, s) C (f, s)/P
                total += (first * first + second * second + 2.0 * r * first * second) / probability
            elif first + second > 1e-18:  # what is skipped is lost in the rounding of the sum
                x, y = _tail_mean(a, b, r), _tail_mean(b, a, r)
                total += first * x + second * y
    return total


@njit
def _one_sign(w: float) -> float:
    """The limit of _sign_information when the other difference is known: phi^2/(Phi(w) Phi(-w))."""
    return normal_pdf(w) ** 2 / (normal_cdf(w) * normal_cdf(-w))


_GRID_STEP = 0.2
_GRID_REACH = 50


@njit
def _fill_corner(corner: np.ndarray) -> None:
    """What the corner of the plane of means adds to two independent signs, on a grid."""
    n = _GRID_REACH
    for i in range(-n, n + 1):
        for j in range(abs(i), n + 1):  # unchanged by (w1, w2) -> (w2, w1) and -> (-w1, -w2)
            w1, w2 = _GRID_STEP * i, _GRID_STEP * j
            value = _sign_information(w1, w2) - _one_sign(w1) - _one_sign(w2)
            corner[n + i, n + j] = corner[n + j, n + i] = value
            corner[n - i, n - j] = corner[n - j, n - i] = value


@njit
def _information_near_the_start(k: float) -> float:
    """c for small k = sqrt(q/V): average over the mean of u, in units of its own covariance."""
    step, reach = 0.4, 22
    total = 0.0
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            z1, z2 = step * i, step * j
            weight = normal_pdf(z1) * normal_pdf(z2)
            if weight > 1e-19:
                total += weight * _sign_information(
                    k * z1, k * (_CORRELATION * z1 + _CONDITIONAL * z2)
                )
    return total * step * step


def _hardmax_information_ratio(x: float, corner: FloatArray) -> float:
    """c/x at x = sqrt(V/Q), by trapezoidal sums that converge geometrically.

    The mean of u is Gaussian with covariance k^2 C, k^2 = q/V, in units of sqrt(3V).  Unless k is
    small, the outcome is uncertain only near the axes w1 = 0 and w2 = 0: there the integrand is
    that of a single sign, and what the corner where they cross adds is localised.
    """
    k2 = (1.0 - x * x) / (x * x)
    if k2 < 0.2:
        return float(_information_near_the_start(math.sqrt(k2)) / x)
    r = _CORRELATION
    w = _GRID_STEP * np.arange(-_GRID_REACH, _GRID_REACH + 1)
    form = (w[:, None] ** 2 + w**2 - 2.0 * r * w[:, None] * w) / (1.0 - r * r)
    one = np.sum(np.exp(-0.5 * w**2 / k2) * _one_signs(w)) * _GRID_STEP
    two = np.sum(np.exp(-0.5 * form / k2) * corner) * _GRID_STEP**2
    # 1/k = x/sqrt(1 - x^2): divide by x analytically so that nothing is lost as x -> 0
    inverse = 1.0 / math.sqrt(1.0 - x * x)
    line = 2.0 * one * _INVERSE_SQRT_2PI * inverse
    return float(line + two * x * inverse * inverse / (2.0 * math.pi * _CONDITIONAL))


def _one_signs(w: Any) -> FloatArray:
    return np.array([_one_sign(value) for value in w])


@functools.cache
def _hardmax_pair_series() -> np.polynomial.Chebyshev:
    """c/x as a Chebyshev series in x = sqrt(V/Q) on [0, 1], where it is analytic."""
    corner = np.empty((2 * _GRID_REACH + 1, 2 * _GRID_REACH + 1))
    _fill_corner(corner)
    nodes = np.cos(np.pi * (np.arange(40) + 0.5) / 40)
    values = [_hardmax_information_ratio(0.5 * (1.0 + t), corner) for t in nodes]
    coefficients = np.polynomial.chebyshev.chebfit(nodes, values, 39)
    return np.polynomial.Chebyshev(coefficients, domain=[0.0, 1.0])


# ---------------------------------------------------------------------------------------------
# Hardmax with any number of tokens: the posterior is in _hardmax.py.  The information c, over
# x = sqrt(V/Q), is a smooth function of x.  Its value at both ends, its slope at x = 1 and its
# integral, which is the entropy of the output, are known exactly; they fix a cubic.
# ---------------------------------------------------------------------------------------------

_MOST_SUMMED = 6  # tokens up to which every output is summed; beyond, outputs are sampled


def _posterior_means(
    winners: Any, omega: FloatArray, variance: float, sweeps: int
) -> tuple[FloatArray, FloatArray]:
    """E[h | y] and its root mean square error per sequence, for outputs given by their winners."""
    n, t = winners.shape
    unit = math.sqrt(variance)
    means = np.empty((n, t, t))
    error, log_probability = np.empty(n), np.empty(n)
    uniforms = np.random.default_rng(0).random((sweeps, t * (t + 1) // 2 + t * t))
    bad = posterior_means(
        np.ascontiguousarray(winners), omega / unit, uniforms, means, error, log_probability
    )
    if bad >= 0:
        raise ValueError(
            f"y must be the hardmax of symmetric indices, got rows with winners "
            f"{winners[bad].tolist()}, which no symmetric matrix has"
        )
    return unit * means, unit * error


@functools.cache
def _outputs(tokens: int) -> tuple[Any, Any]:
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


def _sampled_outputs(tokens: int) -> tuple[Any, Any]:
    """Winners of random outputs, to be averaged with equal weights."""
    from scipy.stats import qmc

    law = qmc.MultivariateNormalQMC(
        np.zeros(tokens * (tokens + 1) // 2), rng=np.random.default_rng(tokens)
    )
    normal = law.random(2**12)
    rows, columns = np.triu_indices(tokens)
    h = np.empty((len(normal), tokens, tokens))
    h[:, rows, columns] = h[:, columns, rows] = normal * np.sqrt(1.0 + (rows == columns))
    return h.argmax(axis=2), np.full(len(normal), 1.0 / len(normal))


def _boundary(tokens: int) -> float:
    r"""Rate at which a row is undecided, :math:`\sum_{b<c} s_{bc}\,p_{bc}`.

    p is the density at zero of the difference of the two indices where both exceed the rest of the
    row, and s^2 V the variance left in it (``hardmax:boundary``).
    """
    from scipy import special

    t = tokens
    m = np.linspace(-12.0, 12.0, 481)
    density = np.exp(-0.5 * m * m) * _INVERSE_SQRT_2PI
    diagonal = np.exp(-0.25 * m * m) * _INVERSE_SQRT_2PI / math.sqrt(2.0)
    below, below_diagonal = special.ndtr(m), special.ndtr(m / math.sqrt(2.0))
    rate = math.sqrt(3.0) * (t - 1) * np.sum(density * diagonal * below ** (t - 2))
    if t > 2:
        two = density**2 * below ** (t - 3) * below_diagonal
        rate += math.sqrt(2.0) * 0.5 * (t - 1) * (t - 2) * np.sum(two)
    return float(rate * (m[1] - m[0]))


@functools.cache
def _series(tokens: int) -> tuple[FloatArray, float]:
    """Polynomial in x through c/x, and an estimate of its largest relative error.

    The error is twice the distance between the cubic and the parabola that leaves the slope at
    x = 1 out.  From seven tokens on only the parabola is affordable, from sampled outputs; its
    error is that of six tokens plus two standard errors.
    """
    if tokens > MOST_TOKENS:
        raise ValueError(
            f"tokens must be at most {MOST_TOKENS} for the information of hardmax, got {tokens}"
        )
    summed = tokens <= _MOST_SUMMED
    outputs, count = _outputs(tokens) if summed else _sampled_outputs(tokens)
    log_probability, gain, curvature = start_of_information(outputs, summed).T
    weight = count * np.exp(log_probability) if summed else count
    one_sign = _GRID_STEP * np.sum(_one_signs(_GRID_STEP * np.arange(-_GRID_REACH, 51)))
    start = float(weight @ gain)
    powers = np.arange(4.0)
    conditions = np.array([0.0**powers, 1.0**powers, 1.0 / (1.0 + powers), powers])
    ends = [tokens * _boundary(tokens) * one_sign, start]
    values = np.array(
        [*ends, -float(weight @ log_probability), start - 2.0 * float(weight @ curvature)]
    )
    parabola = np.linalg.solve(conditions[:3, :3], values[:3])
    if not summed:
        sampling = 2.0 * float(np.std(gain) / math.sqrt(len(gain)) / start)
        return parabola, _series(_MOST_SUMMED)[1] + sampling
    cubic = np.linalg.solve(conditions, values)
    x = np.linspace(0.0, 1.0, 101)
    evaluate = np.polynomial.polynomial.polyval
    distance = float(np.max(np.abs(evaluate(x, parabola) / evaluate(x, cubic) - 1.0)))
    return np.asarray(cubic), 2.0 * distance


@dataclass(frozen=True)
class HardmaxChannel:
    r"""Row-wise hardmax, :math:`y_{ab} = 1` where :math:`h_{ab}` is the largest of its row, else 0.

    The posterior mean is exact for up to eight tokens (``hardmax:recursion``).  The information is
    exact for two tokens, and has a stated error for three to eight.

    Parameters
    ----------
    tokens : int
        T, at least 2.
    sweeps : int
        Sweeps of the Gibbs sampler that takes over for more than eight tokens, and for outputs
        that lie deep in the wrong tail.

    Examples
    --------
    >>> round(HardmaxChannel(tokens=2).information(0.0, 1.5), 10)
    1.239431894
    >>> round(HardmaxChannel(tokens=3).information(0.0, 1.5), 10)
    2.8507484582
    """

    weights: ClassVar[Literal["symmetric"]] = "symmetric"
    tokens: int = 2
    sweeps: int = 100

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=2)
        check.integer("sweeps", self.sweeps, low=20)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the one-hot rows, shape (..., T, T); ``rng`` is not used."""
        h = _index_array("indices", indices, self.tokens)
        return np.asarray(np.arange(self.tokens) == h.argmax(axis=-1)[..., None], dtype=np.float64)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] (``hardmax:posterior``), finite for any input.

        Raises
        ------
        ValueError
            If ``y`` is not one-hot, or no symmetric indices have this output.
        """
        return self.posterior_mean_with_error(y, omega, variance)[0]

    def posterior_mean_with_error(
        self, y: ArrayLike, omega: ArrayLike, variance: float
    ) -> tuple[FloatArray, FloatArray]:
        r"""Return E[h | y] and the root mean square of its error in each sequence, shape (...).

        Rounding for two tokens.  For three to eight it is below :math:`10^{-8}\sqrt V` unless the
        output is so unlikely that it is sampled; the error is then that of the sampler.
        """
        outputs, centre, v = _posterior_arguments(y, omega, variance, self.tokens)
        _one_hot(outputs)
        t = self.tokens
        flat_y, flat = outputs.reshape(-1, t, t), np.ascontiguousarray(centre.reshape(-1, t, t))
        if t == 2:
            means, error = np.empty_like(flat), np.zeros(len(flat))
            _hardmax_pair(flat_y[:, 0, 0] == 1.0, flat_y[:, 1, 1] == 1.0, flat, v, means)
        else:
            means, error = _posterior_means(flat_y.argmax(axis=2), flat, v, self.sweeps)
        return means.reshape(outputs.shape), error.reshape(outputs.shape[:-2])

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        """Return c(q), a function of (Q - q)/Q alone (``hardmax:information``).

        To about 1e-12 at two tokens; see :meth:`information_with_error` for more.
        """
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_with_error(self, overlap: float, second_moment: float) -> tuple[float, float]:
        """Return c(q) and an estimate of its error, about 0.2 percent for three tokens or four.

        The error is zero for two tokens, and for up to six where nothing is known, q = 0.
        """
        value = float(self.information(overlap, second_moment))
        exact = self.tokens == 2 or (self.tokens <= _MOST_SUMMED and overlap == 0.0)
        return value, 0.0 if exact else value * _series(self.tokens)[1]

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            series = _hardmax_pair_series().coef
            return _like(x * np.polynomial.chebyshev.chebval(2.0 * x - 1.0, series))
        return _like(np.asarray(x * np.polynomial.polynomial.polyval(x, _series(self.tokens)[0])))

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out} = \int_0^x (c/x')\,dx'` at :math:`x=\sqrt{V/Q}`, in nats."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            return _like(np.asarray(_hardmax_pair_series().integ(lbnd=0.0)(x)))
        integral = np.polynomial.polynomial.polyint(_series(self.tokens)[0])
        return _like(np.asarray(np.polynomial.polynomial.polyval(x, integral)))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows by the guess hardmax(omega).

        At two tokens :math:`\arccos(\sqrt{q/Q})/\pi`, computed as :math:`\arcsin(\sqrt{V/Q})/\pi`
        (``hardmax:misclassification``); above by quadrature, to about 1e-9 plus 1e-5 relative.  For
        three tokens or more this guess is not quite the likeliest one, because the diagonal index
        of a row is known less well than the others.
        """
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            return _like(np.asarray(np.arcsin(np.minimum(x, 1.0)) / math.pi))
        values = [_misclassified(self.tokens, min(float(ratio), 1.0)) for ratio in np.ravel(x)]
        return _like(np.array(values).reshape(np.shape(x)))


def _misclassified(tokens: int, x: float) -> float:
    """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
    if x < 1e-5:  # the sum below would cancel; two tokens fix the constant
        return math.sqrt(2.0 / math.pi) * _boundary(tokens) * x
    r = math.sqrt((1.0 - x) * (1.0 + x))
    step = 0.15
    points = step * (np.arange(-60, 60) + 0.5)
    weight = np.exp(-0.5 * points**2) * _INVERSE_SQRT_2PI * step
    same = 0.0
    for own, others in ((math.sqrt(2.0), (0, tokens - 1)), (1.0, (1, tokens - 2))):
        # the largest index in h and in omega is own * points; the others are below both
        factor = np.ones((points.size, points.size))
        for spread, count in zip((math.sqrt(2.0), 1.0), others, strict=True):
            h = own / spread * points[:, None]
            z = own / spread * points
            factor *= _both_below(h, z, r, x) ** count
        share = float(weight @ factor @ weight)
        same += share if own > 1.0 else (tokens - 1) * share
    return max(1.0 - same, 0.0)


def _both_below(h: Any, z: Any, r: float, x: float) -> FloatArray:
    """Probability that standard normals of correlation r lie below h and r h + x z (Owen 1956)."""
    from scipy import special

    k = r * h + x * z
    with np.errstate(divide="ignore"):
        tails = special.owens_t(h, z / h) + special.owens_t(k, (x * h - r * z) / k)
    return np.asarray(0.5 * (special.ndtr(h) + special.ndtr(k) - (h * k < 0.0)) - tails)


# ---------------------------------------------------------------------------------------------
# Checks shared by the channels
# ---------------------------------------------------------------------------------------------


def _index_array(name: str, value: ArrayLike, tokens: int) -> FloatArray:
    array = check.reals(name, value)
    if array.ndim < 2 or array.shape[-2:] != (tokens, tokens):
        raise ValueError(f"{name} must have shape (..., {tokens}, {tokens}), got {array.shape}")
    if array.size:
        asymmetry = float(np.abs(array - np.swapaxes(array, -1, -2)).max())
        if asymmetry > 1e-9 * max(1.0, float(np.abs(array).max())):
            raise ValueError(
                f"{name} must be symmetric in the last two axes, "
                f"got entries that differ by {asymmetry:.3g}"
            )
    return array


def _posterior_arguments(
    y: ArrayLike, omega: ArrayLike, variance: float, tokens: int
) -> tuple[FloatArray, FloatArray, float]:
    outputs = check.reals("y", y)
    if outputs.ndim < 2 or outputs.shape[-2:] != (tokens, tokens):
        raise ValueError(f"y must have shape (..., {tokens}, {tokens}), got {outputs.shape}")
    centre = _index_array("omega", omega, tokens)
    if centre.shape != outputs.shape:
        raise ValueError(f"omega must have the shape of y, {outputs.shape}, got {centre.shape}")
    return outputs, centre, check.real("variance", variance, low=0.0, open_low=True)


def _one_hot(outputs: FloatArray) -> None:
    if not (np.isin(outputs, (0.0, 1.0)).all() and (outputs.sum(axis=-1) == 1.0).all()):
        raise ValueError("y must hold one-hot rows of zeros and a single one, got other values")


def _uncertainty(overlap: ArrayLike, second_moment: float) -> FloatArray:
    """Return V = Q - q after checking 0 <= q <= Q."""
    total = check.real("second_moment", second_moment, low=0.0, open_low=True)
    return total - check.reals("overlap", overlap, low=0.0, high=total)


def _variances(variance: ArrayLike, second_moment: float) -> FloatArray:
    """Check 0 <= V <= Q; a plain float inside, as in every root search, passes at once."""
    if type(variance) is float and isinstance(second_moment, float):
        if 0.0 <= variance <= second_moment < math.inf and second_moment > 0.0:
            return np.float64(variance)
    total = check.real("second_moment", second_moment, low=0.0, open_low=True)
    return check.reals("variance", variance, low=0.0, high=total)


def _like(values: FloatArray) -> Any:
    return float(values) if np.ndim(values) == 0 else values
