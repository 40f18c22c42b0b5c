r"""State evolution of the regularised estimator, and the thresholds of its limit of no decay.

In the limit of large d the minimiser behaves as the proximal map of the trace over
:math:`S\succeq0`, applied to the teacher seen through noise (``weight_decay:prox``),

.. math:: \hat S = (R-\theta I)_+,\qquad R = S+\sqrt\Delta\,G,

with two scalars fixed by two equations (``weight_decay:saddle``)

.. math:: 2\alpha c\,\Delta = V(\Delta,\theta)+\sigma^2,\qquad
          \lambda = 4\theta\Bigl(c-\frac{D(\Delta,\theta)}{2\alpha}\Bigr).

V is the error of the proximal map and D its divergence over :math:`d^2/2`.  Both are averages over
the spectrum of R in which the optimal denoiser stands for the unknown S, so that V is a sum of
squares and keeps its digits at any noise (``weight_decay:error``, ``weight_decay:divergence``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.channels import Informative, LinearChannel
from aimlib.priors import Prior, SpectralPrior, WishartPrior

_LOG_SMALLEST, _LOG_LARGEST = math.log(1e-26), math.log(1e12)  # effective noises searched

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_MOST_PANELS = 256


# ---------------------------------------------------------------------------------------------
# Which priors and channels
# ---------------------------------------------------------------------------------------------


def _null_share(prior: Any, channel: Any) -> float:
    """Share of zero eigenvalues of a positive semi-definite S, or ValueError naming the pair."""
    pairs.match(prior, channel, weights="symmetric")
    if isinstance(prior, WishartPrior):
        return max(0.0, 1.0 - prior.width_ratio)
    if isinstance(prior, SpectralPrior) and prior.eigenvalues[0] >= 0.0:
        return float(prior.masses[prior.eigenvalues == 0.0].sum())
    raise ValueError(
        "prior must be of positive semi-definite matrices, a WishartPrior or a SpectralPrior "
        f"without negative eigenvalues, for weight decay with channel = {channel!r}; got {prior!r}"
    )


def _shown(prior: Prior, channel: Informative) -> float:
    """Number c of combinations that one output shows exactly, or ValueError.

    A channel shows fixed combinations if its information is the same whatever is known already.
    """
    total = prior.second_moment
    c = np.asarray(channel.information_at(total * np.array([0.0, 1e-6, 0.5, 1.0]), total))
    if c[0] <= 0.0 or np.ptp(c) > 1e-12 * c[0]:
        raise ValueError(
            "channel must show combinations of the indices without noise, as SoftmaxChannel and "
            "LinearChannel(noise=0) do, so that data can be fitted exactly; "
            f"got channel = {channel!r} with prior = {prior!r}"
        )
    return float(c[0])


def _observations(prior: Prior, channel: Informative) -> tuple[float, float]:
    """Combinations c and the mean variance of their noise (``weight_decay:noise``)."""
    if isinstance(channel, LinearChannel):
        t = channel.tokens
        return 0.5 * t * (t + 1.0), channel.noise * t / (t + 1.0)
    return _shown(prior, channel), 0.0


# ---------------------------------------------------------------------------------------------
# Thresholds
# ---------------------------------------------------------------------------------------------


def minimum_trace_threshold(prior: Prior, channel: Informative) -> float:
    r"""Return the sample complexity from which the least-trace fit is the teacher.

    .. math:: \alpha_{\rm tr} = \frac1{2c}\min_{u\ge0}\Bigl\{2p-p^2+p(1-p)u^2
              +(1-p)^2\int_u^2(x-u)^2\frac{\sqrt{4-x^2}}{2\pi}\,dx\Bigr\}

    with p the share of positive eigenvalues of S: the statistical dimension of the cone of
    directions in which the trace does not grow and S stays positive semi-definite, over
    :math:`d^2/2`, divided by the 2c of the equations (``weight_decay:threshold``).

    Parameters
    ----------
    prior : WishartPrior or SpectralPrior
        Of positive semi-definite S.
    channel : Channel
        One that shows c combinations of the indices exactly: ``SoftmaxChannel`` or
        ``LinearChannel(noise=0)``.

    Returns
    -------
    float
        In sequences over d^2, as :func:`aimlib.strong_recovery_threshold`, which it is at p = 1.

    Raises
    ------
    ValueError
        If S is not positive semi-definite, no finite number of data can be fitted exactly
        (hardmax, sampled tokens, noise), or prior and channel do not belong together.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior, strong_recovery_threshold
    >>> round(minimum_trace_threshold(WishartPrior(0.5), SoftmaxChannel(tokens=2)), 6)
    0.211087
    >>> strong_recovery_threshold(WishartPrior(0.5), SoftmaxChannel(tokens=2))
    0.1875
    """
    empty = _null_share(prior, channel)
    return cone_dimension(1.0 - empty) / (2.0 * _shown(prior, channel))


def positivity_threshold(prior: Prior, channel: Informative) -> float:
    r"""Return the sample complexity from which S >= 0 alone leaves no fit but the teacher.

    .. math:: \alpha_+ = \frac{1-(1-p)^2/2}{2c},

    the bracket of :func:`minimum_trace_threshold` at u = 0 (``weight_decay:positivity``).

    Parameters, errors and units are those of :func:`minimum_trace_threshold`.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> positivity_threshold(WishartPrior(0.5), SoftmaxChannel(tokens=2))
    0.21875
    """
    empty = _null_share(prior, channel)
    return (1.0 - 0.5 * empty * empty) / (2.0 * _shown(prior, channel))


def cone_dimension(share: float) -> float:
    """Statistical dimension over d^2/2 of the descent cone at a matrix of rank ``share`` d."""
    p = check.real("share", share, low=0.0, high=1.0)
    if p in (0.0, 1.0):
        return p
    # the slope in u vanishes where p u = (1-p) E(x-u)_+: the left side grows, the right falls
    u = _root(lambda x: p * x - (1.0 - p) * semicircle_excess(x)[0], 0.0, 2.0)
    return 2.0 * p - p * p + p * (1.0 - p) * u * u + (1.0 - p) ** 2 * semicircle_excess(u)[1]


def semicircle_excess(u: float) -> tuple[float, float]:
    r"""Means of :math:`(x-u)_+` and of its square under the semicircle of radius 2, |u| <= 2.

    In closed form (``weight_decay:excess``), with :math:`u=2\cos\phi`.
    """
    phi = math.acos(min(max(0.5 * u, -1.0), 1.0))
    if phi < 0.1:  # next to the edge the closed form cancels: x - u = 4 sin sin, a smooth integrand
        t = 0.5 * phi * (_NODES + 1.0)
        gap = 4.0 * np.sin(0.5 * (phi - t)) * np.sin(0.5 * (phi + t))
        weight = 0.5 * phi * _WEIGHTS * 2.0 / math.pi * np.sin(t) ** 2
        return float(weight @ gap), float(weight @ gap**2)
    sine, cosine = math.sin(phi), math.cos(phi)
    mass = (phi - sine * cosine) / math.pi
    first = 4.0 * sine**3 / (3.0 * math.pi)
    second = (phi - 0.25 * math.sin(4.0 * phi)) / math.pi
    return first - u * mass, second - 2.0 * u * first + u * u * mass


# ---------------------------------------------------------------------------------------------
# The proximal map
# ---------------------------------------------------------------------------------------------


class ProximalMap:
    r"""Averages of :math:`(R-\theta I)_+` at one noise, as functions of :math:`\theta`."""

    def __init__(self, prior: Prior, noise: float) -> None:
        self.prior, self.noise = prior, noise
        self.edges = prior.support(noise)
        self.mmse = prior.mmse(noise)
        self.largest = float(self.edges[-1, 1])  # of the spectrum: beyond it the estimate is zero

    def _integral(self, function: Callable[[Any, Any], Any], low: float, high: float) -> float:
        """Integrate ``function(x, D(x))`` over the spectrum between two bounds.

        In the angle of x = centre + half cos(t) the square-root ends are smooth, and a bound in the
        middle of the spectrum is one more end: Gauss's rule on ever more panels.
        """
        total = 0.0
        for left, right in self.edges:
            centre, half = 0.5 * (left + right), 0.5 * (right - left)
            ends = np.arccos(np.clip((np.array([high, low]) - centre) / half, -1.0, 1.0))
            if ends[1] > ends[0]:
                total += self._in_angle(function, centre, half, ends)
        return total

    def _in_angle(
        self, function: Callable[[Any, Any], Any], centre: float, half: float, ends: FloatArray
    ) -> float:
        value: float = math.inf
        panels = 2
        while True:
            width = (ends[1] - ends[0]) / panels
            starts = ends[0] + width * np.arange(panels)[:, None]
            t = (starts + 0.5 * width * (_NODES + 1.0)).ravel()
            x = centre + half * np.cos(t)
            weight = self.prior.density(x, self.noise) * half * np.sin(t)
            terms = (weight * function(x, self.prior.shrink(x, self.noise))).reshape(panels, -1)
            previous, value = value, 0.5 * width * float(np.sum(terms @ _WEIGHTS))
            if abs(value - previous) <= 1e-11 * abs(value) or panels == _MOST_PANELS:
                return float(value)
            panels *= 2

    def error(self, theta: float) -> float:
        """V (``weight_decay:error``): the MMSE plus squared distance to the optimal denoiser."""
        kept = self._integral(lambda x, best: (x - theta - best) ** 2, theta, math.inf)
        cut = self._integral(lambda _, best: best**2, -math.inf, theta)
        return float(self.mmse + kept + cut)

    def divergence(self, theta: float) -> float:
        """D (``weight_decay:divergence``), the divergence over d^2/2, from 0 to 1."""
        mean = self._integral(lambda x, best: (x - theta) * (x - best), theta, math.inf)
        return mean / self.noise

    def rank(self, theta: float) -> float:
        """Share of eigenvalues above theta."""
        return self._integral(lambda x, _: np.ones_like(x), theta, math.inf)

    def best_threshold(self) -> float:
        """The theta of least error (``weight_decay:best``)."""

        def slope(theta: float) -> float:
            kept = self._integral(lambda x, best: x - best, theta, math.inf)
            return kept - theta * self.rank(theta)

        # with no eigenvalue below zero a shift is only a bias, and the mean of x - D vanishes
        if self.edges[0, 0] >= 0.0:
            return 0.0
        high = self.largest
        while slope(0.5 * high) < 0.0:  # away from the edge, where mass and slope vanish
            high *= 0.5
        return _root(slope, 0.5 * high, high * (1.0 - 1e-9))

    def threshold(self, alpha: float, c: float, decay: float) -> float:
        """The theta at which the second saddle-point equation holds."""

        def gap(theta: float) -> float:
            penalty = 0.5 * alpha * decay / theta if decay > 0.0 else 0.0
            return self.divergence(theta) - 2.0 * alpha * c + penalty

        low = decay / (4.0 * c)
        if low >= self.largest:
            return low  # the estimate is zero
        if gap(low) <= 0.0:
            return low
        return _root(gap, low, self.largest)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # not at the top: importing aimlib must stay quick

    return float(brentq(function, low, high, xtol=1e-15 * max(high, 1e-300), rtol=1e-14))


# ---------------------------------------------------------------------------------------------
# The saddle point
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regularised:
    """The regularised estimator in the limit of large d; floats, or arrays of one shape.

    Attributes
    ----------
    sample_complexity, decay : float or array
        alpha, and the factor lambda of Tr S/d; 0 is the limit of the least-trace fit.
    estimation_error : float or array
        V, the mean of ||S - S_hat||_F^2/d; exactly 0 at recovery.
    noise, threshold : float or array
        Delta of R = S + sqrt(Delta) G and the theta that is taken off its eigenvalues.
    rank : float or array
        Share of positive eigenvalues of the estimate; at recovery that of S.
    training_loss : float or array
        Mean over sequences of ||P(h - y)||_F^2, without the penalty.
    """

    sample_complexity: Any
    decay: Any
    estimation_error: Any
    noise: Any
    threshold: Any
    rank: Any
    training_loss: Any


def regularised(
    sample_complexity: ArrayLike, prior: Prior, channel: Informative, decay: ArrayLike = 0.0
) -> Regularised:
    r"""Return what the minimiser of loss plus trace penalty reaches (``weight_decay:saddle``).

    Parameters
    ----------
    sample_complexity : float or array
        :math:`\alpha = n/d^2 > 0`.
    prior : WishartPrior or SpectralPrior
        Of positive semi-definite S.
    channel : Channel
        One that shows combinations of the indices exactly, or ``LinearChannel`` with any noise.
    decay : float or array
        :math:`\lambda \ge 0` of :math:`\lambda\,\mathrm{Tr}\,S/d`; broadcast.  Zero means the
        limit :math:`\lambda\to0`, the fit of least trace.  Weight decay :math:`\lambda_W` of
        :func:`aimlib.gradient_descent` at width r is :math:`\lambda=\lambda_W\sqrt{r/d}`.

    Returns
    -------
    Regularised

    Raises
    ------
    ValueError
        If an argument is out of range, or prior and channel do not fit.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior, bayes_optimal
    >>> prior, channel = WishartPrior(0.5), SoftmaxChannel(tokens=2)
    >>> regularised([0.1, 0.2, 0.22], prior, channel).estimation_error.round(4)
    array([0.5274, 0.0051, 0.    ])
    >>> round(bayes_optimal(0.1, prior, channel).estimation_error, 4)
    0.3922
    """
    alphas = check.reals("sample_complexity", sample_complexity, low=0.0, open_low=True)
    decays = check.reals("decay", decay, low=0.0)
    alphas, decays = np.broadcast_arrays(alphas, decays)
    empty, (c, noise) = _null_share(prior, channel), _observations(prior, channel)
    recovered = cone_dimension(1.0 - empty) / (2.0 * c) if noise == 0.0 else math.inf
    rows: list[tuple[float, ...]] = []
    for alpha, factor in zip(alphas.ravel().tolist(), decays.ravel().tolist(), strict=True):
        if factor == 0.0 and alpha >= recovered:
            rows.append((alpha, 0.0, 0.0, 0.0, 0.0, 1.0 - empty, 0.0))
            continue
        theta = functools.partial(ProximalMap.threshold, alpha=alpha, c=c, decay=factor)
        rows.append(_solved(alpha, prior, c, noise, theta, factor))
    return _assembled(rows, alphas.shape)


def best_decay(sample_complexity: ArrayLike, prior: Prior, channel: Informative) -> Regularised:
    r"""Return the regularised estimator at the decay of least error (``weight_decay:best``).

    Parameters and errors are those of :func:`regularised`.

    Returns
    -------
    Regularised
        With ``decay`` the best :math:`\lambda`, 0 where every positive one is worse.

    Examples
    --------
    >>> from aimlib import LinearChannel, WishartPrior
    >>> best = best_decay(0.6, WishartPrior(0.5), LinearChannel(1, noise=0.5))
    >>> round(best.decay, 4), round(best.estimation_error, 4)
    (0.6925, 0.2167)
    """
    alphas = check.reals("sample_complexity", sample_complexity, low=0.0, open_low=True)
    _null_share(prior, channel)
    c, noise = _observations(prior, channel)
    limit = regularised(alphas, prior, channel)
    rows: list[tuple[float, ...]] = []
    for alpha, *least in zip(
        alphas.ravel().tolist(), *(np.ravel(v) for v in _values(limit)[1:]), strict=True
    ):
        row: tuple[float, ...] = (alpha, *least)
        if least[1] > 0.0:
            found = _solved(alpha, prior, c, noise, ProximalMap.best_threshold, None)
            row = found if found[1] > 0.0 and found[2] < least[1] else row
        rows.append(row)
    return _assembled(rows, alphas.shape)


def _solved(
    alpha: float,
    prior: Prior,
    c: float,
    noise: float,
    threshold: Callable[[ProximalMap], float],
    decay: float | None,
) -> tuple[float, ...]:
    """Solve the first saddle-point equation for Delta, theta being a function of Delta."""

    def excess(log_noise: float) -> float:
        delta = math.exp(log_noise)
        proximal = ProximalMap(prior, delta)
        return (proximal.error(threshold(proximal)) + noise) / (2.0 * alpha * c * delta) - 1.0

    high = math.log((prior.second_moment + noise) / (2.0 * alpha * c))
    while excess(high) > 0.0 and high < _LOG_LARGEST:
        high += 1.0
    low = high - 1.0
    while excess(low) < 0.0 and low > _LOG_SMALLEST:
        high, low = low, low - 1.0
    delta = math.exp(_root_log(excess, low, high))
    proximal = ProximalMap(prior, delta)
    theta = threshold(proximal)
    divergence = proximal.divergence(theta) if theta < proximal.largest else 0.0
    error = proximal.error(theta)
    share = 1.0 - divergence / (2.0 * alpha * c)  # of a residual that the fit leaves
    factor = max(4.0 * theta * c * share, 0.0) if decay is None else decay
    loss = 2.0 * c * (error + noise) * share**2 if factor > 0.0 or share > 1e-9 else 0.0
    return alpha, factor, error, delta, theta, proximal.rank(theta), loss


def _root_log(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-13, rtol=1e-14))


def _values(result: Regularised) -> list[Any]:
    return [getattr(result, entry.name) for entry in fields(result)]


def _assembled(rows: list[tuple[float, ...]], shape: tuple[int, ...]) -> Regularised:
    columns = np.array(rows).T.reshape(7, *shape)
    return Regularised(*(column if shape else float(column) for column in columns))
