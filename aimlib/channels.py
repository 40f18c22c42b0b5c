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
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _hardmax_information as many
from aimlib import _validation as check
from aimlib._channel_base import (
    BaseChannel,
    Informative,
    Observed,
    RectangularChannel,
    SymmetricChannel,
    check_cycles,
    check_one_hot,
    check_positive,
    like,
    sampled_error,
    variances,
)
from aimlib._channel_families import HardmaxOutput, LinearOutput, Series, SoftmaxOutput, as_series
from aimlib._hardmax import refuse_impossible, sequence_means
from aimlib._hardmax_pair import fill_pair_means, pair_series
from aimlib._softmax import pair_error
from aimlib._validation import FloatArray

__all__ = [
    "BaseChannel",
    "Channel",
    "HardmaxChannel",
    "Informative",
    "LinearChannel",
    "RectangularChannel",
    "SoftmaxChannel",
    "SymmetricChannel",
    "output_function",
]


class Channel(Observed, Protocol):
    """What the theory and the algorithms ask of a channel of symmetric indices.

    Derive from :class:`SymmetricChannel`, state ``tokens``, :meth:`output`, :meth:`posterior_mean`
    and :meth:`information_at`, and the rest is there.

    Examples
    --------
    One token, seen through a wire that is dead with probability one half:

    >>> class DeadWire(SymmetricChannel):
    ...     tokens = 1
    ...
    ...     def output(self, indices, rng=None):
    ...         h = self.check_indices("indices", indices)
    ...         return np.where(rng.random(h.shape) < 0.5, 0.0, h)
    ...
    ...     def posterior_mean(self, y, omega, variance):
    ...         y, omega, _ = self.check_posterior(y, omega, variance)
    ...         return np.where(y == 0.0, omega, y)
    ...
    ...     def information_at(self, variance, second_moment):
    ...         return 0.5 + 0.0 * np.asarray(variance)
    >>> from aimlib import WignerPrior, bayes_optimal
    >>> round(bayes_optimal(0.3, WignerPrior(), DeadWire()).estimation_error, 12)
    0.7
    """

    @property
    def tokens(self) -> int:
        """T, the number of tokens of a sequence."""


def output_function(
    channel: Channel, y: ArrayLike, omega: ArrayLike, variance: float
) -> FloatArray:
    r"""Return :math:`g_{ab} = (E[h_{ab}\mid y]-\omega_{ab})/((1+\delta_{ab})V)`.

    Parameters
    ----------
    channel : Channel
    y, omega : array, shape (..., T, T)
        Outputs, and the means of the indices given all other data.
    variance : float
        V > 0, the variance of an index off the diagonal.

    Returns
    -------
    array, shape (..., T, T)
        Symmetric in the last two axes (``channels:gout``).

    Raises
    ------
    ValueError
        As :meth:`Channel.posterior_mean`.

    Examples
    --------
    >>> output_function(LinearChannel(1), [[2.0]], [[1.0]], 0.25)
    array([[2.]])
    """
    mean = channel.posterior_mean(y, omega, variance)
    return np.asarray((mean - np.asarray(omega)) / ((1.0 + np.eye(channel.tokens)) * variance))


# ---------------------------------------------------------------------------------------------
# Linear: the indices themselves, with Gaussian noise
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearChannel(LinearOutput, SymmetricChannel):
    r"""The indices with noise, :math:`y_{ab} = h_{ab} + \sqrt\tau\,z_{ab}`.

    The noise is independent over :math:`a\le b`.  With one token it is the quadratic network of
    Maillard et al. (2024).

    Parameters
    ----------
    tokens : int
        T, at least 1.
    noise : float
        Variance :math:`\tau \ge 0`.

    Notes
    -----
    Methods and their arguments are those of :class:`Channel`.

    Examples
    --------
    >>> LinearChannel(tokens=1, noise=0.25).information(0.5, 1.5)
    0.8888888888888888
    """

    tokens: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=1)
        check.store(self, noise=check.real("noise", self.noise, low=0.0))

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless the outputs are symmetric matrices."""
        self.check_indices("outputs", outputs)


# ---------------------------------------------------------------------------------------------
# Softmax: the indices up to one common constant
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxChannel(SoftmaxOutput, SymmetricChannel):
    r"""Row-wise softmax, :math:`y_{ab} = e^{\beta h_{ab}}/\sum_c e^{\beta h_{ac}}`.

    The output gives every row of h up to a shift; the symmetry of h ties the shifts together, so
    that y fixes h up to one additive constant (``channels:softmax-inversion``).

    Parameters
    ----------
    tokens : int
        T, at least 2: with a single token the output is always 1.
    inverse_temperature : float
        :math:`\beta > 0`.

    Notes
    -----
    Methods and their arguments are those of :class:`Channel`.

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
        beta = check.positive("inverse_temperature", self.inverse_temperature)
        check.store(self, inverse_temperature=beta)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return E[h | y]: weighted least squares for the constant (``channels:softmax-mean``).

        Raises
        ------
        ValueError
            If an output is not positive.  At large :math:`\beta` the smallest outputs underflow to
            zero and no longer determine the indices: use a smaller ``inverse_temperature``, or
            :class:`HardmaxChannel`.
        """
        outputs, centre, _ = self.check_posterior(y, omega, variance)
        base = self._indices_up_to_a_constant(outputs)
        # the weights 1/(1 + delta_ab) over a <= b are uniform weights over the full matrix
        constant = (centre - base).mean(axis=(-2, -1), keepdims=True)
        return np.asarray(base + constant)

    def validate(self, outputs: ArrayLike) -> None:
        r"""Raise ValueError, naming the worst row, unless softmax of symmetric indices made them.

        Entries are positive, rows sum to one within :math:`10^{-6}T`, the rounding of single
        precision, and around any three tokens :math:`y_{ab}y_{bc}y_{ca}=y_{ac}y_{cb}y_{ba}`, within
        a relative 6e-6 plus the rounding of :math:`\beta h`.
        """
        super().validate(outputs)
        check_cycles("outputs", np.asarray(outputs, dtype=np.float64), self.inverse_temperature)

    def _indices_up_to_a_constant(self, outputs: FloatArray) -> FloatArray:
        check_positive("y", outputs, self.inverse_temperature)
        logs = np.log(outputs) / self.inverse_temperature
        # log y_ab/beta = h_ab - s_a: antisymmetry gives s_a - s_b, hence s_a up to a constant
        shifts = (np.swapaxes(logs, -1, -2) - logs).mean(axis=-1, keepdims=True)
        base = logs + shifts
        return np.asarray(0.5 * (base + np.swapaxes(base, -1, -2)))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|y-E[y\mid\mathrm{data}]\|_F^2` on a new sequence.

        Half the mean squared distance between the outputs of two posterior samples
        (``softmax:generalization``).  Two tokens: by quadrature, to about 1e-10 for
        :math:`\beta\sqrt Q` up to 10.  More tokens: by quasi-Monte Carlo with a fixed seed, to
        about 1e-3 relative.
        """
        v = variances(variance, second_moment)
        values = [
            pair_error(float(x), float(second_moment), self.inverse_temperature)
            if self.tokens == 2
            else sampled_error(self, float(x), float(second_moment))
            for x in v.ravel()
        ]
        return like(np.array(values).reshape(v.shape))


# ---------------------------------------------------------------------------------------------
# Hardmax: the largest index of every row
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HardmaxChannel(HardmaxOutput, SymmetricChannel):
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

    Notes
    -----
    Methods and their arguments are those of :class:`Channel`.

    Examples
    --------
    >>> round(HardmaxChannel(tokens=2).information(0.0, 1.5), 10)
    1.239431894
    >>> round(HardmaxChannel(tokens=3).information(0.0, 1.5), 10)
    2.8507484582
    """

    tokens: int = 2
    sweeps: int = 100

    def __post_init__(self) -> None:
        check.integer("tokens", self.tokens, low=2)
        check.integer("sweeps", self.sweeps, low=20)

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
        r"""Return E[h | y] and the root mean square of its error in each sequence.

        The error is rounding for two tokens.  For three to eight it is below
        :math:`10^{-8}\sqrt V` unless the output is so unlikely that it is sampled; the error is
        then that of the sampler.

        Parameters
        ----------
        y, omega, variance
            As in :meth:`posterior_mean`.

        Returns
        -------
        mean : array, shape (..., T, T)
        error : array, shape (...)
        """
        outputs, centre, v = self.check_posterior(y, omega, variance)
        check_one_hot("y", outputs)
        t = self.tokens
        flat_y, flat = outputs.reshape(-1, t, t), np.ascontiguousarray(centre.reshape(-1, t, t))
        if t == 2:
            means, error = np.empty_like(flat), np.zeros(len(flat))
            fill_pair_means(flat_y[:, 0, 0] == 1.0, flat_y[:, 1, 1] == 1.0, flat, v, means)
        else:
            means, error = sequence_means(flat_y.argmax(axis=2), flat, v, self.sweeps)
        return means.reshape(outputs.shape), error.reshape(outputs.shape[:-2])

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless the rows are one-hot and symmetric indices have such winners."""
        super().validate(outputs)
        winners = np.asarray(outputs).reshape(-1, self.tokens, self.tokens).argmax(axis=2)
        refuse_impossible("outputs", winners)

    @property
    def series(self) -> tuple[Series, float]:
        """By quadrature for two tokens; a cubic or parabola with a stated error for more."""
        return _series(self.tokens)

    @property
    def is_sampled(self) -> bool:
        """Whether the series is from a sample of outputs, as beyond six tokens."""
        return self.tokens > many.MOST_SUMMED

    def misclassified(self, x: float) -> float:
        """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
        return many.misclassified(self.tokens, x)


@functools.cache
def _series(tokens: int) -> tuple[Series, float]:
    if tokens == 2:
        return pair_series(), 0.0
    coefficients, error = many.series(tokens)
    return as_series(np.polynomial.Polynomial(coefficients)), error
