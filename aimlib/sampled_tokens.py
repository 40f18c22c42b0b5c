r"""Tokens drawn from a softmax, and a softmax with noise: what lies between softmax and hardmax.

A model that is asked rather than opened shows no probabilities.  It shows tokens that it drew: in
each row m independent ones with the probabilities :math:`p_{ab}=\sigma_\beta(h)_{ab}`, of which the
counts say everything (``sampled_tokens:output``).  :class:`SampledSoftmaxChannel` is that channel.
:class:`NoisySoftmaxChannel` shows the probabilities with Gaussian noise, as outputs that were
rounded do.  In both the error falls as :math:`1/\alpha` and never vanishes
(``sampled_tokens:law``): :func:`asymptotic_error`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _sampled_pair as pair
from aimlib import _sampled_rows as many
from aimlib import _validation as check
from aimlib._channel_base import SymmetricChannel, check_shape, like, variances
from aimlib._softmax import row_softmax
from aimlib._validation import FloatArray
from aimlib.channels import SoftmaxChannel
from aimlib.priors import Prior

__all__ = [
    "NoisySoftmaxChannel",
    "SampledSoftmaxChannel",
    "asymptotic_error",
    "fisher_information",
    "tokens_per_soft_label",
]

_KNOTS = 40  # of the series of log c at two tokens


@dataclass(frozen=True)
class SampledSoftmaxChannel(SymmetricChannel):
    r"""Counts of m tokens drawn in each row with the probabilities of its softmax.

    Parameters
    ----------
    tokens : int
        T, at least 2.
    inverse_temperature : float
        :math:`\beta` from 1e-3 to 1e3: that of the teacher's softmax.
    draws : int
        m from 1 to 256, the number of tokens drawn in each row of each sequence.

    Notes
    -----
    Methods and their arguments are those of :class:`aimlib.channels.Channel`.  Outputs are counts,
    shape (..., T, T), every row of which sums to m.  One draw looks like the output of a hardmax:
    outputs do not say which of the two channels made them.

    Two tokens: all sums to about 1e-9.  More: the posterior mean to about 1e-4 of
    :math:`\sqrt V` (1e-3 where :math:`\beta\sqrt V` exceeds 10), in a time that grows as
    :math:`30^T`; the information by Monte Carlo, with the error of
    :meth:`information_with_error`.

    Examples
    --------
    >>> channel = SampledSoftmaxChannel(tokens=2, draws=4)
    >>> channel.output(np.zeros((2, 2)), np.random.default_rng(0)).sum(axis=1)
    array([4., 4.])
    >>> round(channel.information(0.5, 1.5), 6)
    1.162159
    """

    tokens: int
    inverse_temperature: float = 1.0
    draws: int = 1

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=2)
        beta = check.real("inverse_temperature", self.inverse_temperature, low=1e-3, high=1e3)
        object.__setattr__(self, "inverse_temperature", beta)
        check.integer("draws", self.draws, low=1, high=256)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return counts, shape (..., T, T), drawn with ``rng``, which must be given."""
        h = self.check_indices("indices", indices)
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy Generator, which draws the tokens, got {rng!r}")
        return many.draw_counts(h, self.inverse_temperature, self.draws, rng)[0]

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return E[h | y] (``sampled_tokens:posterior``, ``sampled_tokens:race``).

        Raises
        ------
        ValueError
            If y does not hold counts that sum to m in every row, or
            :math:`\beta\sqrt V` exceeds 100.
        """
        counts, centre, v = self.check_posterior(y, omega, variance)
        self._check_counts("y", counts)
        beta, t = self.inverse_temperature, self.tokens
        _check_sharpness(beta, v)
        flat, means = counts.reshape(-1, t, t), centre.reshape(-1, t, t)
        if t > 2:
            return many.posterior_means(flat, means, v, beta, self.draws).reshape(centre.shape)
        shown = np.stack([flat[:, 0, 0], flat[:, 1, 1]], axis=1)
        return _pair_means(shown, means, v, beta, self.draws, 0.0).reshape(centre.shape)

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError, naming the first bad row, unless all rows are counts that sum to m."""
        self._check_counts("outputs", check_shape("outputs", outputs, self.index_shape))

    def _check_counts(self, name: str, y: FloatArray) -> None:
        bad = (y != np.round(y)).any(axis=-1) | (y < 0.0).any(axis=-1)
        bad |= y.sum(axis=-1) != self.draws
        if bad.any():
            first = tuple(int(i[0]) for i in np.nonzero(bad))
            raise ValueError(
                f"{name} must hold counts, rows of whole numbers that sum to draws = {self.draws}, "
                f"got {y[first].tolist()} in row {first}"
            )

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of V (``sampled_tokens:pair-information``)."""
        x = variances(variance, second_moment) / second_moment
        beta = _scaled(self.inverse_temperature, second_moment)
        if self.tokens == 2:
            return like(_from_series(x, beta, self.draws, 0.0))
        fisher = self.draws * many.fisher_information(self.tokens, beta)
        log_ratio = many.series(self.tokens, beta, self.draws)[0]
        return like(fisher * x * np.exp(log_ratio(many.coordinate(x, fisher, beta))))

    def information_with_error(self, overlap: float, second_moment: float) -> tuple[float, float]:
        """Return c(q) and an estimate of its error: a few percent at three tokens or more.

        Parameters
        ----------
        overlap : float
            q from 0 to Q.
        second_moment : float
            Q > 0.
        """
        value = float(self.information(overlap, second_moment))
        if self.tokens == 2:
            return value, 1e-9 * value
        beta = _scaled(self.inverse_temperature, second_moment)
        return value, value * many.series(self.tokens, beta, self.draws)[1]

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|p-E[p\mid\mathrm{data}]\|_F^2`, p the softmax behind the draws.

        The error on the probabilities of a new sequence, without the noise of drawing from them:
        that of :class:`SoftmaxChannel`.
        """
        soft = SoftmaxChannel(self.tokens, self.inverse_temperature)
        return soft.generalization_error(variance, second_moment)


@dataclass(frozen=True)
class NoisySoftmaxChannel(SymmetricChannel):
    r"""The softmax of two tokens with noise, :math:`y_{ab}=p_{ab}+\sqrt\tau\,z_{ab}`.

    Parameters
    ----------
    noise : float
        Variance :math:`\tau` of the noise, independent in all four outputs, from 1e-6 to 100.
    inverse_temperature : float
        :math:`\beta` from 1e-3 to 1e3.

    Notes
    -----
    Methods and their arguments are those of :class:`aimlib.channels.Channel`.  The noise along the
    ones of a row says nothing, because a row of p sums to one: what counts is
    :math:`\hat p=(1+y_{11}-y_{12})/2`, which has noise of variance :math:`\tau/2`
    (``sampled_tokens:noisy``).  Its law is not log-concave in h.

    Examples
    --------
    >>> channel = NoisySoftmaxChannel(noise=0.01)
    >>> round(channel.information(0.5, 1.5), 4)
    1.6817
    """

    noise: float
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        tau = check.real("noise", self.noise, low=1e-6, high=100.0)
        beta = check.real("inverse_temperature", self.inverse_temperature, low=1e-3, high=1e3)
        object.__setattr__(self, "noise", tau)
        object.__setattr__(self, "inverse_temperature", beta)

    @property
    def tokens(self) -> int:
        """T = 2."""
        return 2

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., 2, 2), with noise from ``rng``, which must be given."""
        h = self.check_indices("indices", indices)
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy Generator, which draws the noise, got {rng!r}")
        p = row_softmax(h, self.inverse_temperature)
        return np.asarray(p + math.sqrt(self.noise) * rng.standard_normal(h.shape))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return E[h | y] (``sampled_tokens:posterior``).

        Raises
        ------
        ValueError
            If the shapes do not agree, or :math:`\beta\sqrt V` exceeds 100.
        """
        outputs, centre, v = self.check_posterior(y, omega, variance)
        _check_sharpness(self.inverse_temperature, v)
        flat = outputs.reshape(-1, 2, 2)
        own = np.stack([flat[:, 0, 0] - flat[:, 0, 1], flat[:, 1, 1] - flat[:, 1, 0]], axis=1)
        means = centre.reshape(-1, 2, 2)
        found = _pair_means(0.5 + 0.5 * own, means, v, self.inverse_temperature, 0, self.noise)
        return found.reshape(centre.shape)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of V (``sampled_tokens:pair-information``), to about 1e-6."""
        x = variances(variance, second_moment) / second_moment
        beta = _scaled(self.inverse_temperature, second_moment)
        return like(_from_series(x, beta, 0, self.noise))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|p-E[p\mid\mathrm{data}]\|_F^2`, without the noise of y."""
        soft = SoftmaxChannel(2, self.inverse_temperature)
        return soft.generalization_error(variance, second_moment)


# ---------------------------------------------------------------------------------------------
# The law at many data
# ---------------------------------------------------------------------------------------------


def fisher_information(
    channel: SampledSoftmaxChannel | NoisySoftmaxChannel, second_moment: float
) -> float:
    r"""Return s, the slope of c at V = 0 (``sampled_tokens:fisher``).

    Parameters
    ----------
    channel : SampledSoftmaxChannel or NoisySoftmaxChannel
    second_moment : float
        Q > 0.

    Returns
    -------
    float
        To about 1e-10.

    Raises
    ------
    ValueError
        If the channel is another one, or Q is not positive.

    Examples
    --------
    >>> round(fisher_information(SampledSoftmaxChannel(tokens=2), 1.5), 6)
    0.876352
    """
    total = check.real("second_moment", second_moment, low=0.0, open_low=True)
    if isinstance(channel, SampledSoftmaxChannel):
        beta = _scaled(channel.inverse_temperature, total)
        return channel.draws * many.fisher_information(channel.tokens, beta) / total
    if isinstance(channel, NoisySoftmaxChannel):
        beta = _scaled(channel.inverse_temperature, total)
        return _noisy_fisher(beta, channel.noise) / total
    raise ValueError(
        f"channel must be a SampledSoftmaxChannel or a NoisySoftmaxChannel, got {channel!r}"
    )


def asymptotic_error(
    sample_complexity: ArrayLike,
    prior: Prior,
    channel: SampledSoftmaxChannel | NoisySoftmaxChannel,
) -> Any:
    r"""Return the error at many data, :math:`V\simeq\kappa/(2\alpha s)` (``sampled_tokens:law``).

    Parameters
    ----------
    sample_complexity : float or array
        alpha > 0.
    prior : Prior
    channel : SampledSoftmaxChannel or NoisySoftmaxChannel

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
    >>> prior, channel = WishartPrior(0.5), SampledSoftmaxChannel(tokens=2)
    >>> round(asymptotic_error(100.0, prior, channel), 5)
    0.00428
    >>> round(bayes_optimal(100.0, prior, channel).estimation_error, 5)
    0.00427
    """
    pairs.match(prior, channel, weights="symmetric")
    alphas = check.reals("sample_complexity", sample_complexity, low=0.0, open_low=True)
    slope = fisher_information(channel, prior.second_moment)
    return like(prior.degrees_of_freedom / (2.0 * slope * alphas))


def tokens_per_soft_label(
    variance: ArrayLike, second_moment: float, channel: SampledSoftmaxChannel
) -> Any:
    r"""Return how many tokens a row are worth one soft label (``sampled_tokens:worth``).

    The error depends on data through :math:`\alpha c` alone.  To stand for one sequence with its
    softmax, :math:`c_\infty/c_m(V)` sequences with m draws in each row are needed, together
    :math:`m\,c_\infty/c_m(V)` tokens a row.

    Parameters
    ----------
    variance : float or array
        V > 0 to Q, the error at which they are compared.
    second_moment : float
        Q > 0.
    channel : SampledSoftmaxChannel

    Returns
    -------
    float or array

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> round(tokens_per_soft_label(1.0, 1.5, SampledSoftmaxChannel(tokens=2)), 3)
    3.481
    """
    if not isinstance(channel, SampledSoftmaxChannel):
        raise ValueError(f"channel must be a SampledSoftmaxChannel, got {channel!r}")
    total = check.real("second_moment", second_moment, low=0.0, open_low=True)
    v = check.reals("variance", variance, low=0.0, high=total, open_low=True)
    soft = 0.5 * channel.tokens * (channel.tokens + 1.0) - 1.0
    return like(channel.draws * soft / np.asarray(channel.information_at(v, total)))


# ---------------------------------------------------------------------------------------------
# Two tokens
# ---------------------------------------------------------------------------------------------


def _check_sharpness(beta: float, variance: float) -> None:
    if beta * math.sqrt(variance) > 100.0:
        raise ValueError(
            f"variance must be at most {1e4 / beta**2:g} for inverse_temperature {beta:g}, so that "
            f"the rows can be resolved, got {variance!r}; HardmaxChannel is the limit"
        )


def _scaled(beta: float, second_moment: float) -> float:
    """beta sqrt(Q), rounded so that equal arguments share one series."""
    return float(f"{beta * math.sqrt(second_moment):.14g}")


def _pair_means(
    shown: FloatArray, means: FloatArray, variance: float, beta: float, draws: int, noise: float
) -> FloatArray:
    out = np.empty_like(means)
    step = pair.step_of(variance, beta, draws, noise)
    pair.fill_means(shown, means, variance, beta, draws, noise, step, out)
    return out


@functools.lru_cache(maxsize=64)
def _noisy_fisher(beta: float, noise: float) -> float:
    """12 beta^2 E[p^2 (1-p)^2]/tau at Q = 1, by the trapezoid over u of variance 3."""
    h = 0.4 / math.sqrt(1.0 / 3.0 + beta * beta)
    u = h * np.arange(-math.ceil(16.0 / h), math.ceil(16.0 / h) + 1)
    gauss = np.exp(-(u**2) / 6.0)
    p = 0.5 * (1.0 + np.tanh(0.5 * beta * u))
    return float(12.0 * beta**2 * (gauss @ (p * (1.0 - p)) ** 2) / gauss.sum() / noise)


@functools.lru_cache(maxsize=64)
def _pair_series(beta: float, draws: int, noise: float) -> tuple[np.polynomial.Chebyshev, float]:
    """log(c/s x) as a series in a logarithmic coordinate of x = V/Q, and s at Q = 1."""
    fisher = draws * many.fisher_information(2, beta) if draws else _noisy_fisher(beta, noise)
    knots = np.cos(math.pi * (np.arange(_KNOTS) + 0.5) / _KNOTS)
    x = many.from_coordinate(0.5 * (1.0 + knots), fisher, beta)
    c = np.array([pair.pair_information(float(v), beta, draws, noise) for v in x])
    fit = np.polynomial.chebyshev.chebfit(knots, np.log(c / (fisher * x)), _KNOTS - 1)
    return np.polynomial.Chebyshev(fit, domain=[0.0, 1.0]), fisher


def _from_series(x: FloatArray, beta: float, draws: int, noise: float) -> FloatArray:
    series, fisher = _pair_series(beta, draws, noise)
    return np.asarray(fisher * x * np.exp(series(many.coordinate(x, fisher, beta))))
