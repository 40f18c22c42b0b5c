r"""What is known in closed form of Bayes-optimal learning: thresholds and limits.

Part of :mod:`aimlib.replica`, which says where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._channel_base import like
from aimlib._pairs import coordinate_variance
from aimlib.channels import Channel, HardmaxChannel, Informative
from aimlib.priors import Estimated, Prior


def bracketed_root(
    function: Callable[[float], float], low: float, high: float
) -> tuple[float, bool]:
    """Brent's root of a function in a bracket, and whether it was reached."""
    from scipy.optimize import brentq  # not at the top: importing aimlib must stay quick

    root, report = brentq(function, low, high, xtol=1e-15, rtol=1e-15, full_output=True, disp=False)
    return float(root), bool(report.converged)


def strong_recovery_threshold(prior: Estimated, channel: Informative) -> float:
    r"""Return the sample complexity beyond which the error is zero (``softmax:threshold``).

    .. math:: \alpha_c = \frac{\kappa}{2\,c(Q)},

    with :math:`\kappa` the degrees of freedom of the prior over :math:`d^2/2`.  It is infinite when
    one output says less and less as the indices become known, :math:`c(Q) = 0`.

    Parameters
    ----------
    prior : Prior or BilinearPrior
    channel : Channel or cross-attention channel
        For cross-attention the 2 is absent.

    Returns
    -------
    float
        :math:`\alpha_c`, in sequences over :math:`d^2`.

    Raises
    ------
    ValueError
        If prior and channel do not belong together.

    Examples
    --------
    >>> from aimlib import HardmaxChannel, SoftmaxChannel, WishartPrior
    >>> strong_recovery_threshold(WishartPrior(0.5), SoftmaxChannel(tokens=2))
    0.1875
    >>> strong_recovery_threshold(WishartPrior(0.5), HardmaxChannel(tokens=2))
    inf
    """
    pairs.match(prior, channel)
    c = float(channel.information_at(0.0, prior.second_moment))
    if prior.degrees_of_freedom == 0.0:
        return 0.0
    return prior.degrees_of_freedom / (coordinate_variance(prior) * c) if c > 0.0 else math.inf


def weak_recovery_threshold(channel: Channel) -> float:
    r"""Return the small-width weak-recovery threshold of :math:`\bar\alpha = \alpha/\rho`.

    As :math:`\rho\to0` the error stays at its value without data up to
    :math:`\bar\alpha = 1/(2c(0))` (``small_width:threshold``).

    Parameters
    ----------
    channel : Channel
        Of symmetric indices; for others :func:`aimlib.cross_attention.weak_recovery_threshold`.

    Returns
    -------
    float
        In units of the width ratio, unlike the strong threshold, which is an :math:`\alpha`.

    Raises
    ------
    ValueError
        If the channel is not one of symmetric indices.

    Examples
    --------
    >>> from aimlib import HardmaxChannel, SoftmaxChannel
    >>> weak_recovery_threshold(SoftmaxChannel(tokens=2))
    0.25
    >>> round(weak_recovery_threshold(HardmaxChannel(tokens=2)), 7)
    0.4034106
    """
    pairs.alone("channel", channel, "symmetric", "aimlib.cross_attention.weak_recovery_threshold")
    return float(1.0 / (2.0 * channel.information_at(1.0, 1.0)))


def small_width_overlap(rescaled_complexity: ArrayLike, channel: Channel) -> Any:
    r"""Return the overlap q in [0, 1] in the limit of small width (``small_width:overlap``).

    With :math:`\tilde q > 1` as a parameter the solution is explicit,

    .. math:: q = (1-1/\tilde q)^2,\qquad \bar\alpha = \frac{2-1/\tilde q}{2\,c(q)} .

    Parameters
    ----------
    rescaled_complexity : float or array
        :math:`\bar\alpha = \alpha/\rho \ge 0`.
    channel : Channel

    Returns
    -------
    float or array
        0 up to the weak-recovery threshold; the error is 1 - q.

    Raises
    ------
    ValueError
        If a complexity is negative or not finite, or the channel not one of symmetric indices.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel
    >>> small_width_overlap([0.2, 0.375, 0.5], SoftmaxChannel(2)).round(4)
    array([0.  , 0.25, 1.  ])
    """
    pairs.alone("channel", channel, "symmetric")
    targets = check.reals("rescaled_complexity", rescaled_complexity, low=0.0)

    def complexity(x: float) -> float:  # x = 1/q_tilde decreases from 1 to 0
        v = x * (2.0 - x)
        c = channel.information_at(min(v, 1.0), 1.0)
        return float((2.0 - x) / (2.0 * c)) if c > 0.0 else math.inf

    first, last = complexity(1.0), complexity(1e-15)
    overlaps = np.zeros(targets.size)
    for i, target in enumerate(targets.ravel()):
        if target >= last:
            overlaps[i] = 1.0
        elif target > first:
            log_x, _ = bracketed_root(
                lambda s, goal=target: math.log(complexity(math.exp(s)) / goal),  # type: ignore[misc]
                math.log(1e-15),
                0.0,
            )
            overlaps[i] = (1.0 - math.exp(log_x)) ** 2
    return like(overlaps.reshape(targets.shape))


def hardmax_asymptotic_error(
    sample_complexity: ArrayLike, prior: Prior, channel: HardmaxChannel | None = None
) -> Any:
    r"""Return the large-:math:`\alpha` error of hardmax (``hardmax:power-law``).

    For two tokens, the default,

    .. math:: V \simeq \Bigl[\frac{\kappa\sqrt{2\pi Q}}{4J\alpha}\Bigr]^2,\qquad
              J = \int\frac{\varphi(t)^2}{\Phi(t)\Phi(-t)}\,dt = 1.80639\dots

    Parameters
    ----------
    sample_complexity : float or array
        alpha > 0.
    prior : Prior
    channel : HardmaxChannel, optional
        With any number of tokens; the slope of its information at V = 0 replaces 2J/sqrt(2 pi Q).

    Returns
    -------
    float or array

    Raises
    ------
    ValueError
        If a sample complexity is not positive, or prior and channel do not fit.

    Examples
    --------
    >>> from aimlib import WishartPrior, bayes_optimal
    >>> round(hardmax_asymptotic_error(6.4, WishartPrior(0.5)), 5)
    0.00248
    >>> round(bayes_optimal(6.4, WishartPrior(0.5), HardmaxChannel(2)).estimation_error, 5)
    0.00247
    """
    chosen = HardmaxChannel() if channel is None else channel
    pairs.match(prior, chosen, weights="symmetric")
    alphas = check.reals("sample_complexity", sample_complexity, low=0.0, open_low=True)
    if not isinstance(chosen, HardmaxChannel):
        raise ValueError(f"channel must be a HardmaxChannel, got {channel!r}")
    tiny = 1e-30
    total = prior.second_moment
    slope = chosen.information_at(tiny * total, total) / math.sqrt(tiny)
    return like(total * (prior.degrees_of_freedom / (2.0 * slope * alphas)) ** 2)
