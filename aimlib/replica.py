r"""Bayes-optimal learning: the replica free entropy, its saddle point and its limits.

With one layer the free entropy per :math:`d^2` is (``replica:free-entropy``)

.. math:: \Phi = \mathrm{extr}_{q,\hat q}\Bigl\{I_{prior}(\hat q)-\frac{q\hat q}{4}
          + \alpha\Psi_{out}(q)\Bigr\}

and its saddle point (``replica:saddle``) joins a prior and a channel through

.. math:: \hat q = \frac{2\alpha\,c(q)}{Q-q},\qquad Q-q = \mathrm{mmse}(1/\hat q).

Read with the effective noise :math:`\Delta = 1/\hat q` as a parameter, the saddle point is
explicit: :math:`V = \mathrm{mmse}(\Delta)` is the error and :math:`\alpha = V/(2\Delta c)` the
sample complexity at which it is reached.  Everything below inverts that one monotone function.

The 2 counts the noise in the coordinates of symmetric weights; for the rectangular ones of
cross-attention it is 1 (``cross_attention:saddle``, :func:`aimlib._pairs.coordinate_variance`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._limits import (
    bracketed_root,
    hardmax_asymptotic_error,
    small_width_overlap,
    strong_recovery_threshold,
    weak_recovery_threshold,
)
from aimlib._pairs import coordinate_variance
from aimlib._validation import FloatArray
from aimlib.channels import Informative
from aimlib.priors import Estimated

__all__ = [
    "BayesOptimal",
    "bayes_optimal",
    "fixed_points",
    "free_entropy",
    "hardmax_asymptotic_error",
    "small_width_overlap",
    "state_evolution",
    "strong_recovery_threshold",
    "weak_recovery_threshold",
]

# Effective noises beyond which S is recovered, or unknown, to rounding.
_LOG_SMALLEST = math.log(1e-30)
_LOG_LARGEST = math.log(1e15)
_STEP = 0.5  # of log Delta, in the search for a bracket


# ---------------------------------------------------------------------------------------------
# The saddle point
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BayesOptimal:
    """The saddle point at one or several sample complexities; floats, or arrays of one shape.

    Attributes
    ----------
    sample_complexity : float or array
        alpha = n/d^2.
    overlap : float or array
        q, the overlap of the optimal estimate with the teacher.
    conjugate : float or array
        The conjugate of q, one over the effective noise; infinite at perfect recovery.
    estimation_error : float or array
        V = Q - q, the mean of ||S - S_hat||_F^2/d; exactly 0 at perfect recovery.
    converged : bool or array of bool
        Whether the saddle point was found to rounding.
    generalization_error : float or array
        Error of the best prediction of a new output, as the channel defines it.
    free_entropy : float or array
        Phi at the saddle point, in nats per d^2.
    """

    sample_complexity: Any
    overlap: Any
    conjugate: Any
    estimation_error: Any
    converged: Any
    _prior: Estimated = field(repr=False)
    _channel: Informative = field(repr=False)

    @functools.cached_property
    def generalization_error(self) -> Any:
        """Error of the best prediction of a new output; see the channel's method of this name."""
        return self._channel.generalization_error(self.estimation_error, self._prior.second_moment)

    @functools.cached_property
    def free_entropy(self) -> Any:
        """Phi at the saddle point; +inf where a noiseless continuous output gives S away."""
        alphas, errors, conjugates = np.broadcast_arrays(
            self.sample_complexity, self.estimation_error, self.conjugate
        )
        values = np.array(
            [
                _free_entropy(v, 1.0 / h if h > 0.0 else math.inf, a, self._prior, self._channel)
                for a, v, h in zip(alphas.flat, errors.flat, conjugates.flat, strict=True)
            ]
        )
        return _like(values.reshape(alphas.shape))


def bayes_optimal(
    sample_complexity: ArrayLike, prior: Estimated, channel: Informative
) -> BayesOptimal:
    r"""Return the Bayes-optimal performance at each sample complexity (``replica:saddle``).

    Parameters
    ----------
    sample_complexity : float or array
        :math:`\alpha = n/d^2 \ge 0`.
    prior : Prior or BilinearPrior
        Law of the teacher, e.g. ``WishartPrior(0.5)``.
    channel : Channel or cross-attention channel
        From indices to outputs, e.g. ``SoftmaxChannel(tokens=2)``.

    Returns
    -------
    BayesOptimal
        Floats for a float, arrays for an array.

    Raises
    ------
    ValueError
        If a sample complexity is negative or not finite.

    Notes
    -----
    Where the saddle point is not unique this is the one with the largest error, which state
    evolution reaches from no information.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> result = bayes_optimal([0.05, 0.10, 0.15], WishartPrior(0.5), SoftmaxChannel(tokens=2))
    >>> result.estimation_error.round(6)
    array([0.723677, 0.392196, 0.128131])
    """
    pairs.match(prior, channel)
    alphas = check.reals("sample_complexity", sample_complexity, low=0.0)
    solve = _solver(prior, channel)
    found = np.array([solve(alpha) for alpha in alphas.ravel().tolist()]).reshape(*alphas.shape, 3)
    conjugate, error = found[..., 0], found[..., 1]
    return BayesOptimal(
        sample_complexity=_like(alphas),
        overlap=_like(prior.second_moment - error),
        conjugate=_like(conjugate),
        estimation_error=_like(error),
        converged=_like(found[..., 2] == 1.0),
        _prior=prior,
        _channel=channel,
    )


def _log_complexity(prior: Estimated, channel: Informative) -> Callable[[float], float]:
    """Return log alpha = log V/(2 Delta c) as a function of log Delta, which remembers."""
    nu, total = coordinate_variance(prior), prior.second_moment

    @functools.cache  # a search asks for the ends of its bracket again, and so does the next one
    def value(log_noise: float) -> float:
        noise = math.exp(log_noise)
        error = min(prior.mmse(noise), total)
        c = float(channel.information_at(error, total))
        return math.log(error / (nu * noise * c)) if error * c > 0.0 else math.inf

    return value


def _solver(prior: Estimated, channel: Informative) -> Callable[[float], tuple[float, float, bool]]:
    """Return the map from alpha to 1/Delta, V, and whether alpha(Delta) = alpha has been solved.

    Delta = 0 at perfect recovery and infinite without data.  The search starts at the noise that
    no information leaves and descends until alpha(Delta) exceeds alpha, so that of several
    solutions it finds the one with the largest error.  It steps on a grid of log Delta, so that the
    points of a curve share what they find.
    """
    variance = float(prior.variance)
    nothing = 0.0, variance, True
    threshold = strong_recovery_threshold(prior, channel)
    log_complexity = _log_complexity(prior, channel)
    most = channel.information_at(variance, prior.second_moment) if variance > 0.0 else 0.0

    def solve(alpha: float) -> tuple[float, float, bool]:
        if alpha == 0.0:
            return nothing
        if variance <= 0.0 or alpha >= threshold:
            return math.inf, 0.0, True
        log_alpha = math.log(alpha)
        start = math.log(variance / (coordinate_variance(prior) * most)) - log_alpha
        high = math.ceil(min(start, _LOG_LARGEST) / _STEP)
        while log_complexity(_STEP * high) > log_alpha and _STEP * high < _LOG_LARGEST:
            high += 2
        if _STEP * high >= _LOG_LARGEST:  # no information yet: V is the variance to rounding
            noise = math.exp(_STEP * high)
            return 1.0 / noise, prior.mmse(noise), True
        step, low = 1, high - 1
        while log_complexity(_STEP * low) <= log_alpha:
            high, step = low, 2 * step
            low -= step
            if _STEP * low < _LOG_SMALLEST:
                # a noiseless channel has reached recovery to rounding; any other is not solved
                return math.inf, 0.0, math.isfinite(threshold)
        root, converged = bracketed_root(
            lambda x: log_complexity(x) - log_alpha, _STEP * low, _STEP * high
        )
        noise = math.exp(root)
        return 1.0 / noise, prior.mmse(noise), converged

    return solve


# ---------------------------------------------------------------------------------------------
# The dynamics, and all saddle points
# ---------------------------------------------------------------------------------------------


def state_evolution(
    sample_complexity: float,
    prior: Estimated,
    channel: Informative,
    iterations: int = 50,
    start: Literal["uninformed", "informed"] = "uninformed",
) -> FloatArray:
    r"""Return the iterates :math:`V_t` of :math:`V \leftarrow \mathrm{mmse}(V/(2\alpha c))`.

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    prior, channel
        As in :func:`bayes_optimal`.
    iterations : int
        Number of steps, at least 1.
    start : {"uninformed", "informed"}
        From the variance of the prior, or from a millionth of it.

    Returns
    -------
    array, shape (iterations + 1,)
        The error that message passing should have at each step (``amp:state-evolution``).

    Raises
    ------
    ValueError
        If an argument is out of range, or prior and channel do not belong together.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> state_evolution(0.1, WishartPrior(0.5), SoftmaxChannel(2), iterations=3).round(4)
    array([1.    , 0.6337, 0.5141, 0.4596])
    """
    pairs.match(prior, channel)
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    steps = check.integer("iterations", iterations, low=1)
    if start not in ("uninformed", "informed"):
        raise ValueError(f"start must be 'uninformed' or 'informed', got {start!r}")
    v = np.empty(steps + 1)
    v[0] = prior.variance * (1.0 if start == "uninformed" else 1e-6)
    for t in range(steps):
        if v[t] == 0.0:
            v[t + 1 :] = 0.0
            break
        c = channel.information_at(min(v[t], prior.second_moment), prior.second_moment)
        noise = v[t] / (coordinate_variance(prior) * alpha * c)
        v[t + 1] = prior.mmse(noise) if noise > 1e-300 else 0.0
    return v


def fixed_points(
    sample_complexity: float, prior: Estimated, channel: Informative, resolution: int = 400
) -> FloatArray:
    """Return the errors V > 0 of all saddle points, ascending.

    Every sign change of alpha(Delta) - alpha on a logarithmic grid of the effective noise is
    refined.  More than one means a first-order transition near this sample complexity; none means
    that only perfect recovery is left (``replica:crossing``).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    prior, channel
        As in :func:`bayes_optimal`.
    resolution : int
        Number of grid points over the effective noises from 1e-12 to 1e12, at least 10.

    Returns
    -------
    array, shape (k,)

    Raises
    ------
    ValueError
        If an argument is out of range, or prior and channel do not belong together.

    Examples
    --------
    Below the recovery threshold there is one, beyond it none:

    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> for alpha in (0.1, 0.2):
    ...     print(fixed_points(alpha, WishartPrior(0.5), SoftmaxChannel(2), 50).round(4))
    [0.3922]
    []
    """
    pairs.match(prior, channel)
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    check.integer("resolution", resolution, low=10)
    grid = np.linspace(math.log(1e-12), math.log(1e12), resolution)
    log_complexity = _log_complexity(prior, channel)

    def excess(x: float) -> float:
        return log_complexity(x) - math.log(alpha)

    gap = np.array([excess(x) for x in grid])
    roots = [
        bracketed_root(excess, grid[i], grid[i + 1])[0]
        for i in np.flatnonzero(np.sign(gap[:-1]) * np.sign(gap[1:]) < 0)
    ]
    return np.asarray(prior.mmse(np.exp(np.sort(roots))))


# ---------------------------------------------------------------------------------------------
# Free entropy
# ---------------------------------------------------------------------------------------------


def free_entropy(
    overlap: float,
    conjugate: float,
    sample_complexity: float,
    prior: Estimated,
    channel: Informative,
) -> float:
    r"""Return :math:`I_{prior}(\hat q)-q\hat q/4+\alpha\Psi_{out}(q)` (``replica:free-entropy``).

    For the rectangular weights of cross-attention the quarter is a half.

    Parameters
    ----------
    overlap : float
        q in [0, Q).
    conjugate : float
        :math:`\hat q \ge 0`.
    sample_complexity : float
        :math:`\alpha \ge 0`.
    prior, channel
        As in :func:`bayes_optimal`.

    Returns
    -------
    float
        In nats per d^2.  For a noiseless continuous output only differences are meaningful.

    Examples
    --------
    >>> from aimlib import LinearChannel, WignerPrior
    >>> free_entropy(0.0, 0.0, 0.0, WignerPrior(), LinearChannel())
    0.0
    """
    pairs.match(prior, channel)
    total = prior.second_moment
    q = check.real("overlap", overlap, low=0.0, high=total, open_high=True)
    h = check.real("conjugate", conjugate, low=0.0)
    alpha = check.real("sample_complexity", sample_complexity, low=0.0)
    return _free_entropy(total - q, 1.0 / h if h > 0.0 else math.inf, alpha, prior, channel)


def _free_entropy(
    error: float, noise: float, alpha: float, prior: Estimated, channel: Informative
) -> float:
    """The same in terms of V = Q - q and Delta, where q h/4 and Q h/4 no longer cancel."""
    if error == 0.0:
        return math.inf
    output = -alpha * channel.output_entropy(error, prior.second_moment) if alpha > 0.0 else 0.0
    if math.isinf(noise):
        return float(output)
    share = 0.5 / coordinate_variance(prior)
    return float(share * error / noise - prior.information(noise) + output)


def _like(values: Any) -> Any:
    array = np.asarray(values)
    return array.item() if array.ndim == 0 else array
