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
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray

__all__ = ["Channel", "HardmaxChannel", "LinearChannel", "SoftmaxChannel", "output_function"]


class Channel(Protocol):
    """What the theory and the algorithms ask of a channel."""

    @property
    def tokens(self) -> int: ...

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray: ...
    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray: ...
    def information(self, overlap: ArrayLike, second_moment: float) -> Any: ...
    def information_at(self, variance: ArrayLike, second_moment: float) -> Any: ...
    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any: ...
    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any: ...


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


def _softmax_error_sampled(variance: float, second_moment: float, channel: SoftmaxChannel) -> float:
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

_SQRT_HALF = math.sqrt(0.5)
_INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_CORRELATION = 1.0 / 3.0
_CONDITIONAL = math.sqrt(1.0 - _CORRELATION**2)
_ARC_NODES, _ARC_WEIGHTS = np.polynomial.legendre.leggauss(12)
_TAIL_NODES, _TAIL_WEIGHTS = np.polynomial.legendre.leggauss(64)
_SAFE_PROBABILITY = 1e-2  # above it the quadrant probability keeps 13 digits


@njit
def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x * _SQRT_HALF)


@njit
def _normal_pdf(x: float) -> float:
    return _INVERSE_SQRT_2PI * math.exp(-0.5 * x * x)


@njit
def _log_normal_cdf(x: float) -> float:
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    square = 1.0 / (x * x)
    series = 1.0 - square * (
        1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square * (1.0 - 9.0 * square)))
    )
    return -0.5 * x * x + math.log(-_INVERSE_SQRT_2PI / x * series)


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
    return _normal_cdf(a) * _normal_cdf(b) + total * top / (4.0 * math.pi)


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
        peak = max(peak, -0.5 * x * x + _log_normal_cdf((b + r * x) / _CONDITIONAL))
    mass, moment = 0.0, 0.0
    for k in range(_TAIL_NODES.size):
        offset = half * (1.0 + _TAIL_NODES[k])
        x = left + offset
        logarithm = -0.5 * x * x + _log_normal_cdf((b + r * x) / _CONDITIONAL)
        weight = _TAIL_WEIGHTS[k] * math.exp(logarithm - peak)
        mass += weight
        moment += weight * offset
    return left + moment / mass


@njit
def _tail_slope(x: float, b: float, r: float, scale: float) -> float:
    """Derivative of -x^2/2 + log Phi((b + r x)/sqrt(1 - r^2))."""
    argument = (b + r * x) / _CONDITIONAL
    if argument > -30.0:
        mills = _normal_pdf(argument) / _normal_cdf(argument)
    else:  # phi/Phi = -x (1 + 1/x^2 - 2/x^4 + ...)
        square = 1.0 / (argument * argument)
        mills = -argument * (1.0 + square * (1.0 - 2.0 * square))
    return -x + scale * mills


@njit
def _quadrant_means(a: float, b: float, r: float) -> tuple[float, float]:
    """Means of a standard bivariate normal truncated to x > -a, y > -b."""
    probability = _quadrant_probability(a, b, r)
    if probability > _SAFE_PROBABILITY:
        first = _normal_pdf(a) * _normal_cdf((b - r * a) / _CONDITIONAL)
        second = _normal_pdf(b) * _normal_cdf((a - r * b) / _CONDITIONAL)
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
            first = _normal_pdf(a) * _normal_cdf((b - r * a) / _CONDITIONAL)
            second = _normal_pdf(b) * _normal_cdf((a - r * b) / _CONDITIONAL)
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
    return _normal_pdf(w) ** 2 / (_normal_cdf(w) * _normal_cdf(-w))


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
            weight = _normal_pdf(z1) * _normal_pdf(z2)
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
# Hardmax with three tokens or more.  The output says that in every row one index is the largest:
# T(T-1) linear constraints on T(T+1)/2 Gaussians, with no closed form.  Given all others, one index
# is a normal truncated to an interval, so that a Gibbs sampler is exact and never leaves the cone;
# averaging the conditional means instead of the samples removes most of its noise.
# ---------------------------------------------------------------------------------------------


@njit
def _truncated_normal(low: float, high: float, uniform: float) -> tuple[float, float]:
    """Return a draw and the mean of a standard normal truncated to (low, high), in any tail."""
    flip = low + high > 0.0 if high < math.inf else low > -high
    if high == math.inf and low == -math.inf:
        flip = False
    if flip:  # work where the distribution function is small and accurate
        low, high = -high, -low
    log_low = _log_normal_cdf(low) if low > -math.inf else -math.inf
    log_high = _log_normal_cdf(high) if high < math.inf else 0.0
    share = math.exp(log_low - log_high) if low > -math.inf else 0.0
    log_mass = log_high + math.log1p(-share) if share < 1.0 else -math.inf
    if log_mass == -math.inf or high - low < 1e-9:
        middle = 0.5 * (low + high)
        return (-middle, -middle) if flip else (middle, middle)
    below = math.exp(-0.5 * low * low - log_mass) if low > -math.inf else 0.0
    above = math.exp(-0.5 * high * high - log_mass) if high < math.inf else 0.0
    mean = _INVERSE_SQRT_2PI * (below - above)
    mean = min(max(mean, low), high)
    probability = math.exp(log_high) * (share + uniform * (1.0 - share))
    if probability > 1e-290:
        draw = min(max(_normal_quantile(probability), low), high)
    else:
        target = log_high + math.log(share + uniform * (1.0 - share))
        draw = _normal_quantile_of_log(target, max(low, -1e5), min(high, 40.0))
    return (-draw, -mean) if flip else (draw, mean)


_QUANTILE_CENTRE = (
    np.array([3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
              1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
              3.3430575583588128105e4, 2.5090809287301226727e3]),
    np.array([1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
              2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
              5.2264952788528545610e3]),
)  # fmt: skip
_QUANTILE_MIDDLE = (
    np.array([1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
              3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
              2.27238449892691845833e-2, 7.74545014278341407640e-4]),
    np.array([1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
              1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
              1.05075007164441684324e-9]),
)  # fmt: skip
_QUANTILE_TAIL = (
    np.array([6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
              2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
              2.71155556874348757815e-5, 2.01033439929228813265e-7]),
    np.array([1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
              7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
              2.04426310338993978564e-15]),
)  # fmt: skip


@njit
def _rational(x: float, numerator: np.ndarray, denominator: np.ndarray) -> float:
    top, bottom = 0.0, 0.0
    for k in range(7, -1, -1):
        top = top * x + numerator[k]
        bottom = bottom * x + denominator[k]
    return top / bottom


@njit
def _normal_quantile(p: float) -> float:
    """Quantile of the standard normal by the rational functions of Wichura (1988, AS 241)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * _rational(0.180625 - q * q, _QUANTILE_CENTRE[0], _QUANTILE_CENTRE[1])
    r = math.sqrt(-math.log(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        x = _rational(r - 1.6, _QUANTILE_MIDDLE[0], _QUANTILE_MIDDLE[1])
    else:
        x = _rational(r - 5.0, _QUANTILE_TAIL[0], _QUANTILE_TAIL[1])
    return -x if q < 0.0 else x


@njit
def _normal_quantile_of_log(target: float, low: float, high: float) -> float:
    """Solve log Phi(x) = target in (low, high) by Newton's iteration inside a bracket."""
    x = -math.sqrt(max(-2.0 * target, 0.0)) if target < -3.0 else 0.0
    if not low < x < high:
        x = 0.5 * (low + high)
    for _ in range(60):
        value = _log_normal_cdf(x)
        if value > target:
            high = x
        else:
            low = x
        slope = math.exp(-0.5 * x * x - value) * _INVERSE_SQRT_2PI if x > -30.0 else -x
        following = x - (value - target) / slope if slope > 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - x) < 1e-9 * max(1.0, abs(x)):
            return following
        x = following
    return x


@njit
def _feasible_start(winner: np.ndarray, start: np.ndarray) -> bool:
    """Fill indices that obey the output, by heights in the order that it imposes on the pairs."""
    t = winner.size
    start[:, :] = 0.0
    for _ in range(t * t):
        changed = False
        for a in range(t):
            w = winner[a]
            for b in range(t):
                if b != w and start[a, w] <= start[a, b]:
                    start[a, w] = start[a, b] + 1.0
                    start[w, a] = start[a, w]
                    changed = True
        if not changed:
            return True
    return False


@njit
def _interval(h: np.ndarray, winner: np.ndarray, a: int, b: int) -> tuple[float, float]:
    """Interval of h_ab that the output allows, all other indices given."""
    t = winner.size
    low, high = -math.inf, math.inf
    for side in range(2):
        row, column = (a, b) if side == 0 else (b, a)
        if winner[row] == column:
            for c in range(t):
                if c != column:
                    low = max(low, h[row, c])
        else:
            high = min(high, h[row, winner[row]])
        if a == b:
            break
    return low, high


@njit
def _hardmax_gibbs(
    winners: np.ndarray,
    omega: np.ndarray,
    variance: float,
    uniforms: np.ndarray,
    burn: int,
    first: np.ndarray,
    second: np.ndarray,
) -> int:
    """Fill two means of E[h | y], one from each half of the chain; return a bad row or -1."""
    n, t = winners.shape
    sweeps = uniforms.shape[0]
    h = np.empty((t, t))
    for k in range(n):
        if not _feasible_start(winners[k], h):
            return k
        h *= math.sqrt(variance)
        first[k] = 0.0
        second[k] = 0.0
        half = (sweeps - burn) // 2
        for sweep in range(sweeps):
            position = 0
            for a in range(t):
                for b in range(a, t):
                    scale = math.sqrt(variance * (2.0 if a == b else 1.0))
                    low, high = _interval(h, winners[k], a, b)
                    centre = omega[k, a, b]
                    u = uniforms[sweep, position] + 0.61803398874989485 * k
                    position += 1
                    draw, mean = _truncated_normal(
                        (low - centre) / scale, (high - centre) / scale, u - math.floor(u)
                    )
                    h[a, b] = h[b, a] = min(max(centre + scale * draw, low), high)
                    if sweep >= burn:
                        target = first if sweep < burn + half else second
                        target[k, a, b] += (centre + scale * mean) / half
        for a in range(t):
            for b in range(a):
                first[k, a, b] = first[k, b, a]
                second[k, a, b] = second[k, b, a]
    return -1


def _sampled_posterior(
    winners: Any, omega: FloatArray, variance: float, sweeps: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Means of the two halves of the chains, for outputs given by the winner of each row."""
    t = winners.shape[1]
    burn = max(10, sweeps // 5)
    total = burn + 2 * ((sweeps - burn) // 2)
    # one table of uniforms, shifted by a different multiple of the golden ratio in each sequence
    uniforms = np.random.default_rng(seed).random((total, t * (t + 1) // 2))
    first, second = np.empty_like(omega), np.empty_like(omega)
    bad = _hardmax_gibbs(
        np.ascontiguousarray(winners), np.ascontiguousarray(omega), variance, uniforms, burn,
        first, second,
    )  # fmt: skip
    if bad >= 0:
        raise ValueError(
            f"y must be the hardmax of symmetric indices, got rows with winners "
            f"{winners[bad].tolist()}, which no symmetric matrix has"
        )
    return first, second


_SAMPLED_NODES = 8


def _sampled_information(
    tokens: int, ratio: float, draws: int, sweeps: int, seed: int
) -> tuple[float, float]:
    """c and its standard error at x = sqrt(V/Q) = ratio, Q = 1.

    By the Nishimori identity c = E[h~ . E[h~ | y]] with h~ the true whitened indices, which is
    linear in the estimated mean: the noise of the chain averages out and leaves no bias.
    """
    rng = np.random.default_rng(seed)
    v = ratio * ratio
    rows, columns = np.triu_indices(tokens)
    scale = np.sqrt(1.0 + (rows == columns))
    omega, h = np.empty((2, draws, tokens, tokens))
    known = math.sqrt(max(1.0 - v, 0.0)) * scale * rng.standard_normal((draws, rows.size))
    truth = rng.standard_normal((draws, rows.size))
    omega[:, rows, columns] = omega[:, columns, rows] = known
    full = known + ratio * scale * truth
    h[:, rows, columns] = h[:, columns, rows] = full
    first, second = _sampled_posterior(h.argmax(axis=2), omega, v, sweeps, seed + 1)
    mean = 0.5 * (first + second)[:, rows, columns]
    samples = np.sum(truth * (mean - known) / (ratio * scale), axis=1)
    return float(samples.mean()), float(samples.std() / math.sqrt(draws))


@functools.cache
def _sampled_series(tokens: int) -> tuple[FloatArray, float]:
    """Cubic in x fitted to sampled values of c/x, and the standard error of c relative to c."""
    nodes = 0.5 * (1.0 + np.cos(np.pi * (np.arange(_SAMPLED_NODES) + 0.5) / _SAMPLED_NODES))
    values, errors = np.transpose(
        [_sampled_information(tokens, float(x), 20_000, 40, 100 + i) for i, x in enumerate(nodes)]
    )
    fit = np.polynomial.polynomial.polyfit(nodes, values / nodes, 3, w=nodes / errors)
    return np.asarray(fit), float(np.max(errors / values) / 1.5)


@dataclass(frozen=True)
class HardmaxChannel:
    r"""Row-wise hardmax, :math:`y_{ab} = 1` where :math:`h_{ab}` is the largest of its row, else 0.

    Two tokens are treated exactly.  For more the posterior is sampled with fixed seeds, and
    :meth:`posterior_mean_with_error` and :meth:`information_with_error` state the errors.

    Parameters
    ----------
    tokens : int
        T, at least 2.
    sweeps : int
        Sweeps of the Gibbs sampler for three tokens or more.

    Examples
    --------
    >>> round(HardmaxChannel(tokens=2).information(0.0, 1.5), 10)
    1.239431894
    """

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
        """Return E[h | y] (``hardmax:posterior``).

        Exact and finite for any input at two tokens; the mean of a Gibbs sampler above.

        Raises
        ------
        ValueError
            If ``y`` is not one-hot, or no symmetric indices have this output.
        """
        return self.posterior_mean_with_error(y, omega, variance)[0]

    def posterior_mean_with_error(
        self, y: ArrayLike, omega: ArrayLike, variance: float
    ) -> tuple[FloatArray, float]:
        """Return E[h | y] and the root mean square of its error: 0 for two tokens."""
        outputs, centre, v = _posterior_arguments(y, omega, variance, self.tokens)
        _one_hot(outputs)
        t = self.tokens
        flat_y, flat = outputs.reshape(-1, t, t), np.ascontiguousarray(centre.reshape(-1, t, t))
        if t == 2:
            out = np.empty_like(flat)
            _hardmax_pair(flat_y[:, 0, 0] == 1.0, flat_y[:, 1, 1] == 1.0, flat, v, out)
            return out.reshape(outputs.shape), 0.0
        first, second = _sampled_posterior(flat_y.argmax(axis=2), flat, v, self.sweeps, 0)
        error = float(np.sqrt(np.mean((0.5 * (first - second)) ** 2))) if first.size else 0.0
        return (0.5 * (first + second)).reshape(outputs.shape), error

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        """Return c(q), a function of (Q - q)/Q alone (``hardmax:information``).

        To about 1e-12 at two tokens; see :meth:`information_with_error` for more.
        """
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_with_error(self, overlap: float, second_moment: float) -> tuple[float, float]:
        """Return c(q) and its standard error: 0 for two tokens, about 1 percent above."""
        value = float(self.information(overlap, second_moment))
        return value, 0.0 if self.tokens == 2 else value * _sampled_series(self.tokens)[1]

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            series = _hardmax_pair_series().coef
            return _like(x * np.polynomial.chebyshev.chebval(2.0 * x - 1.0, series))
        series = _sampled_series(self.tokens)[0]
        return _like(np.asarray(x * np.polynomial.polynomial.polyval(x, series)))

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out} = \int_0^x (c/x')\,dx'` at :math:`x=\sqrt{V/Q}`, in nats."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            return _like(np.asarray(_hardmax_pair_series().integ(lbnd=0.0)(x)))
        integral = np.polynomial.polynomial.polyint(_sampled_series(self.tokens)[0])
        return _like(np.asarray(np.polynomial.polynomial.polyval(x, integral)))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows by the guess hardmax(omega).

        At two tokens :math:`\arccos(\sqrt{q/Q})/\pi`, computed as :math:`\arcsin(\sqrt{V/Q})/\pi`
        (``hardmax:misclassification``); above by quasi-Monte Carlo to about 1e-3.
        """
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        if self.tokens == 2:
            return _like(np.asarray(np.arcsin(np.minimum(x, 1.0)) / math.pi))
        values = [_misclassified(self.tokens, float(ratio)) for ratio in np.ravel(x)]
        return _like(np.array(values).reshape(np.shape(x)))


def _misclassified(tokens: int, ratio: float) -> float:
    """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
    from scipy.stats import qmc

    rows, columns = np.triu_indices(tokens)
    scale = np.sqrt(1.0 + (rows == columns))
    law = qmc.MultivariateNormalQMC(np.zeros(2 * rows.size), rng=np.random.default_rng(0))
    normal = law.random(2**15)
    omega, h = np.empty((2, normal.shape[0], tokens, tokens))
    known = math.sqrt(max(1.0 - ratio * ratio, 0.0)) * scale * normal[:, : rows.size]
    omega[:, rows, columns] = omega[:, columns, rows] = known
    full = known + ratio * scale * normal[:, rows.size :]
    h[:, rows, columns] = h[:, columns, rows] = full
    return float(np.mean(omega.argmax(axis=2) != h.argmax(axis=2)))


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
    if type(variance) is float and 0.0 <= variance <= second_moment < math.inf:
        return np.float64(variance)
    total = check.real("second_moment", second_moment, low=0.0, open_low=True)
    return check.reals("variance", variance, low=0.0, high=total)


def _like(values: FloatArray) -> Any:
    return float(values) if np.ndim(values) == 0 else values
